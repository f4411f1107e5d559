package secrets

import (
	"bytes"
	"regexp"
	"strings"

	"github.com/aspengine/asp/provider"
)

// rule is one form of secret. The first group of the form is the secret.
type rule struct {
	name, what string
	severity   provider.Severity
	words      []string // lower case; without one of them the form is not tried
	form       *regexp.Regexp
	bits       float64 // least entropy a character
	random     bool    // drawn from a space that cannot be searched
	varied     bool    // letters and digits both, as a random string has
}

// placeholders are what people write where a secret would stand.
var placeholders = []string{"example", "placeholder", "changeme", "change_me", "change-me", "your_", "your-", "yourpass", "xxxx", "redacted", "dummy", "sample",
	"12345678", "abcdefgh", "password", "secret", "<", "${", "{{", "$(", "****", "....", "process.env", "os.environ", "getenv"}

// accepts holds a match to what a form alone does not say.
func (r *rule) accepts(secret []byte) bool {
	low := strings.ToLower(string(secret))
	for _, p := range placeholders {
		if strings.Contains(low, p) {
			return false
		}
	}
	if r.varied && (!bytes.ContainsAny(secret, "0123456789") || strings.ToUpper(low) == low) {
		return false
	}
	return entropy(secret) >= r.bits
}

// rules are in the order in which they claim a place.
func rules() []rule {
	// edge keeps a form from matching inside a longer word.
	form := func(s string) *regexp.Regexp {
		return regexp.MustCompile(`(?:^|[^A-Za-z0-9_])(` + s + `)(?:[^A-Za-z0-9_]|$)`)
	}
	token := func(name, what, words, s string, bits float64) rule {
		return rule{name: name, what: what, severity: provider.SeverityError, words: strings.Fields(words), form: form(s), bits: bits, random: true}
	}
	return []rule{
		{name: "private-key", what: "a private key", severity: provider.SeverityError, words: []string{"private key"}, random: true, bits: 3,
			form: regexp.MustCompile(`-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----\s*((?:[A-Za-z-]+: [^\n]*\n)*[A-Za-z0-9+/=\\\s]{64,}?)-----END`)},
		token("aws-access-key", "an AWS access key id", "akia asia", `(?:AKIA|ASIA)[A-Z2-7]{16}`, 3),
		{name: "aws-secret-key", what: "an AWS secret access key", severity: provider.SeverityError, words: []string{"aws"}, bits: 4, random: true,
			form: regexp.MustCompile(`(?i:aws[a-z0-9_ .-]{0,20}secret[a-z0-9_ .-]{0,20})["']?\s*[:=]\s*["']?([A-Za-z0-9/+]{40})(?:[^A-Za-z0-9/+=]|$)`)},
		token("github-token", "a GitHub token", "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_", `gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}`, 3.5),
		token("gitlab-token", "a GitLab token", "glpat- gldt- glrt-", `gl(?:pat|dt|rt)-[A-Za-z0-9_-]{20,}`, 3.5),
		token("slack-token", "a Slack token", "xox", `xox[abeoprs]-[A-Za-z0-9-]{20,}`, 3),
		token("slack-webhook", "a Slack webhook", "hooks.slack.com", `hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/+]{40,}`, 3.5),
		token("stripe-key", "a Stripe live key", "sk_live_ rk_live_", `[sr]k_live_[A-Za-z0-9]{20,}`, 3.5),
		token("google-api-key", "a Google API key", "aiza", `AIza[A-Za-z0-9_-]{35}`, 3.5),
		token("anthropic-key", "an Anthropic API key", "sk-ant-", `sk-ant-[a-z0-9]+-[A-Za-z0-9_-]{60,}`, 3.5),
		token("openai-key", "an OpenAI API key", "sk-", `sk-(?:proj-|svcacct-|admin-)?[A-Za-z0-9_-]{20,}T3BlbkFJ[A-Za-z0-9_-]{20,}`, 3.5),
		token("npm-token", "an npm token", "npm_", `npm_[A-Za-z0-9]{36}`, 3.5),
		token("pypi-token", "a PyPI token", "pypi-", `pypi-AgE[A-Za-z0-9_-]{50,}`, 3.5),
		token("sendgrid-key", "a SendGrid key", "sg.", `SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}`, 3.5),
		token("digitalocean-token", "a DigitalOcean token", "dop_v1_ doo_v1_ dor_v1_", `do[opr]_v1_[a-f0-9]{64}`, 3),
		token("jwt", "a signed JSON web token", "eyj", `eyJ[A-Za-z0-9_-]{15,}\.eyJ[A-Za-z0-9_-]{15,}\.[A-Za-z0-9_-]{32,}`, 3.5),
		{name: "azure-storage-key", what: "an Azure storage account key", severity: provider.SeverityError, words: []string{"accountkey"}, bits: 4, random: true,
			form: regexp.MustCompile(`AccountKey=([A-Za-z0-9+/]{86}==)`)},
		{name: "url-password", what: "a password in a URL", severity: provider.SeverityError, words: []string{"://"},
			form: regexp.MustCompile(`[a-zA-Z][a-zA-Z0-9+.-]*://[^\s:/?#\[\]@"'` + "`" + `<>]{1,100}:([^\s:/?#@"'` + "`" + `<>]{6,100})@[A-Za-z0-9\[]`), bits: 2},
		{name: "assigned-secret", what: "a string that looks random under a name that promises a secret", severity: provider.SeverityWarning,
			words: []string{"secret", "token", "passw", "api_key", "apikey", "api-key", "private_key", "access_key", "credential"}, bits: 3.5, varied: true,
			form: regexp.MustCompile(`(?i:(?:secret|token|passw(?:or)?d|api[_-]?key|private[_-]?key|access[_-]?key|credentials?)[a-z0-9_.-]{0,30})["']?\s*(?::=|[:=]|=>)\s*["']([A-Za-z0-9+/=_.~!@%^&*-]{16,200})["']`)},
	}
}
