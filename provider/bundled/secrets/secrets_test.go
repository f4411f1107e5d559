package secrets_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/aspengine/asp/provider/bundled/secrets"
	"github.com/aspengine/asp/provider/providertest"
	"github.com/aspengine/asp/seam/wire"
)

// random makes a string that no scanner of this repository takes for a secret:
// it exists while the test runs.
func random(r *rand.Rand, alphabet string, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[r.IntN(len(alphabet))]
	}
	return string(b)
}

const (
	alnum  = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	base32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	hexes  = "0123456789abcdef"
)

func samples() map[string]string {
	r := rand.New(rand.NewPCG(1, 2))
	a := func(n int) string { return random(r, alnum, n) }
	return map[string]string{
		"secrets/private-key":        "-----BEGIN RSA " + "PRIVATE KEY-----\n" + a(64) + "\n" + a(64) + "\n-----END RSA " + "PRIVATE KEY-----",
		"secrets/aws-access-key":     "AKIA" + random(r, base32, 16),
		"secrets/aws-secret-key":     "aws_secret_access_key = " + a(40),
		"secrets/github-token":       "ghp_" + a(36),
		"secrets/gitlab-token":       "glpat-" + a(20),
		"secrets/slack-token":        "xoxb-" + a(24),
		"secrets/slack-webhook":      "https://hooks.slack.com/services/T" + a(8) + "/B" + a(8) + "/" + a(24),
		"secrets/stripe-key":         "sk_live_" + a(24),
		"secrets/google-api-key":     "AIza" + a(35),
		"secrets/anthropic-key":      "sk-ant-api03-" + a(80),
		"secrets/openai-key":         "sk-proj-" + a(24) + "T3BlbkFJ" + a(24),
		"secrets/npm-token":          "npm_" + a(36),
		"secrets/pypi-token":         "pypi-AgE" + a(60),
		"secrets/sendgrid-key":       "SG." + a(22) + "." + a(43),
		"secrets/digitalocean-token": "dop_v1_" + random(r, hexes, 64),
		"secrets/jwt":                "eyJ" + a(20) + ".eyJ" + a(30) + "." + a(43),
		"secrets/azure-storage-key":  "AccountKey=" + a(86) + "==",
		"secrets/url-password":       "postgres://app:" + a(12) + "@db.internal/x",
		"secrets/assigned-secret":    `api_key: "` + a(30) + `1a"`,
	}
}

func TestEveryRuleFindsItsForm(t *testing.T) {
	p := secrets.New("1")
	all := samples()
	for _, rule := range p.Check.Rules {
		s, ok := all[rule]
		if !ok {
			t.Errorf("no sample for %s", rule)
			continue
		}
		h := providertest.Open(t, p, map[string]string{})
		a := h.Check(h.Changeset(map[string]string{"conf/x.env": "# ü\nkey = " + s + "\n"}), wire.CompareAll, "changeset", "")
		if len(a.Diagnostics) != 1 || a.Diagnostics[0].Code != rule || a.Diagnostics[0].Location.Range.Start.Line < 1 {
			t.Errorf("%s: %+v", rule, a.Diagnostics)
			continue
		}
		// Nothing of the secret leaves, not even in part.
		said := fmt.Sprintf("%+v", a)
		for i := 0; i+8 <= len(s); i++ {
			if part := s[i : i+8]; strings.Contains(said, part) && !strings.Contains("secrets/"+rule+" private key PRIVATE KEY a password in a URL", part) {
				t.Errorf("%s: the answer holds %q of it", rule, part)
				break
			}
		}
	}
}

func TestSecretsSideBySide(t *testing.T) {
	token := samples()["secrets/github-token"]
	h := providertest.Open(t, secrets.New("1"), map[string]string{})
	a := h.Check(h.Changeset(map[string]string{"a": token + " " + token + "," + token + "\n"}), wire.CompareAll, "changeset", "")
	if len(a.Diagnostics) != 3 {
		t.Errorf("%+v", a.Diagnostics)
	}
}

func TestWhatIsNoSecret(t *testing.T) {
	h := providertest.Open(t, secrets.New("1"), map[string]string{})
	for _, s := range []string{
		"AKIAIOSFODNN7EXAMPLE", `password = "changeme_changeme_1"`, `token: "${GITHUB_TOKEN_VALUE_1}"`, "https://user:<password>@host/", "postgres://user:password@db/x",
		`secret_name = "my-application-secret"`, `api_key: os.environ["API_KEY"]`, "ghp_short", "-----BEGIN PUBLIC KEY-----\n" + strings.Repeat("A", 80) + "\n-----END PUBLIC KEY-----",
		"https://example.org:8080/a@b", `tokenizer = "abcdefghijklmnopqrstuvw"`, `passwordField: "aaaaaaaaaaaaaaaaaaaaaaaa1"`,
	} {
		a := h.Check(h.Changeset(map[string]string{"a.txt": s}), wire.CompareAll, "changeset", "")
		if len(a.Diagnostics) > 0 {
			t.Errorf("%q: %+v", s, a.Diagnostics)
		}
	}
}

func TestComparisonAndSettings(t *testing.T) {
	all := samples()
	token, url := all["secrets/github-token"], all["secrets/url-password"]
	h := providertest.Open(t, secrets.New("1"), map[string]string{"a": "x = " + token + "\n" + url + "\n"})
	moved := h.Changeset(map[string]string{"a": "", "b": "\n\ny: " + token + "\n" + url + "\n"})
	if a := h.Check(moved, wire.CompareIntroduced, "changeset", ""); a.Status != wire.StatusComplete || len(a.Diagnostics) != 0 {
		t.Errorf("moved: %+v", a.Diagnostics)
	}
	other := h.Changeset(map[string]string{"a": "x = ghp_" + token[10:] + token[4:10] + "\npostgres://app:another-one@db.internal/x\n"})
	a := h.Check(other, wire.CompareIntroduced, "changeset", "")
	if len(a.Diagnostics) != 2 {
		t.Errorf("in the place of old ones: %+v", a.Diagnostics)
	}
	if len(a.Diagnostics) > 0 {
		allow := fmt.Sprintf(`{"allow":[%q],"exclude":["vendor/**"]}`, a.Diagnostics[0].Fingerprint)
		if b := h.Check(other, wire.CompareIntroduced, "changeset", allow); len(b.Diagnostics) != 1 {
			t.Errorf("allowed: %+v", b.Diagnostics)
		}
	}
	if a := h.Check(other, wire.CompareResolved, "changeset", ""); len(a.Diagnostics) != 2 {
		t.Errorf("resolved: %+v", a.Diagnostics)
	}
}

func FuzzAnalyse(f *testing.F) {
	for _, s := range samples() {
		f.Add([]byte(s))
	}
	h := providertest.Open(f, secrets.New("1"), map[string]string{})
	f.Fuzz(func(t *testing.T, content []byte) {
		if len(content) == 0 {
			return
		}
		h.T = t
		if a := h.Check(h.Changeset(map[string]string{"a.txt": string(content)}), wire.CompareAll, "changeset", ""); len(a.Coverage.Degraded) > 0 {
			t.Fatalf("%+v", a.Coverage.Degraded)
		}
	})
}
