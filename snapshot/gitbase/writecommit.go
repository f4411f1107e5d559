package gitbase

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/snapshot/gitbase/gitconfig"
)

// Identity is a person as git writes one.
type Identity struct{ Name, Email string }

// String is "Name <email>".
func (i Identity) String() string { return i.Name + " <" + i.Email + ">" }

// Commit is what a commit says beside its tree.
type Commit struct {
	Tree      string
	Parents   []string
	Author    Identity
	Committer Identity
	When      time.Time // of both; its zone is recorded
	Message   string
}

// SignsCommits tells whether the configuration asks git to sign commits, which
// Commit does not do.
func (r *Repo) SignsCommits(ctx context.Context) (bool, error) {
	cfg, err := loadConfig(ctx, r.Places, Head{})
	if err != nil {
		return false, fmt.Errorf("read configuration: %w", err)
	}
	return cfg.Bool("commit.gpgsign", false)
}

// Identities reads author and committer from git's configuration: author.name
// and committer.name with their addresses where they are set, user.name and
// user.email otherwise. The environment and the machine's name are not asked: a
// guess would be in the history for good.
func (r *Repo) Identities(ctx context.Context) (author, committer Identity, items refusal.List, err error) {
	cfg, err := loadConfig(ctx, r.Places, Head{})
	if err != nil {
		return author, committer, nil, fmt.Errorf("read identity: %w", err)
	}
	missing := map[string]bool{}
	author, committer = person(cfg, "author", missing), person(cfg, "committer", missing)
	for _, key := range []string{"user.name", "user.email"} {
		if missing[key] {
			items = append(items, refusal.New(refusal.UnsupportedOperation, "", -1, "git's configuration has no usable %s, which a commit needs; set it with `git config %s …`", key, key))
		}
	}
	return author, committer, items, nil
}

func person(cfg *gitconfig.Config, role string, missing map[string]bool) Identity {
	get := func(part string) string {
		v, ok := cfg.String(role + "." + part)
		if v = cleanIdentity(v); !ok || v == "" {
			v, _ = cfg.String("user." + part)
			v = cleanIdentity(v)
		}
		if v == "" {
			missing["user."+part] = true
		}
		return v
	}
	return Identity{get("name"), get("email")}
}

// cleanIdentity drops what would break the line of a commit, as git does.
func cleanIdentity(s string) string {
	s = strings.Map(func(c rune) rune {
		if c == '<' || c == '>' || c == '\n' || c == 0 {
			return -1
		}
		return c
	}, s)
	return strings.TrimFunc(s, func(c rune) bool { return c <= ' ' || strings.ContainsRune(".,:;<>\"\\'", c) })
}

// maxMessage bounds a commit message.
const maxMessage = 1 << 20

// CleanMessage makes a commit message of foreign text: valid UTF-8 without
// control characters, no white space at line ends, no empty lines at either end
// and at most one between others, a final newline. "" when nothing is left.
func CleanMessage(s string) string {
	if len(s) > maxMessage {
		s = s[:maxMessage]
	}
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\r\n", "\n"), string(utf8.RuneError))
	s = strings.Map(func(c rune) rune {
		if c < ' ' && c != '\n' && c != '\t' || c == 0x7f {
			return -1
		}
		return c
	}, s)
	var out []string
	for line := range strings.SplitSeq(s, "\n") {
		line = strings.TrimRight(line, " \t")
		if line == "" && (len(out) == 0 || out[len(out)-1] == "") {
			continue
		}
		out = append(out, line)
	}
	if n := len(out); n > 0 && out[n-1] == "" {
		out = out[:n-1]
	}
	if len(out) == 0 {
		return ""
	}
	return strings.Join(out, "\n") + "\n"
}

// Commit stores a commit and returns its id. It is not signed and runs no hook.
func (w *ObjectWriter) Commit(ctx context.Context, c Commit) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "tree %s\n", c.Tree)
	for _, p := range c.Parents {
		fmt.Fprintf(&b, "parent %s\n", p)
	}
	when := fmt.Sprintf("%d %s", c.When.Unix(), c.When.Format("-0700"))
	fmt.Fprintf(&b, "author %s %s\ncommitter %s %s\n\n%s", c.Author, when, c.Committer, when, c.Message)
	id, err := w.bytes(ctx, "commit", []byte(b.String()))
	return id.String(), err
}

// wantsReflog is git's rule for making a log where there is none.
func wantsReflog(cfg *gitconfig.Config, ref string) bool {
	v, ok := cfg.String("core.logallrefupdates")
	if ok && strings.EqualFold(v, "always") {
		return true
	}
	bare, err := cfg.Bool("core.bare", false)
	want := err == nil && !bare
	if ok {
		if want, err = cfg.Bool("core.logallrefupdates", want); err != nil {
			return false
		}
	}
	for _, kind := range []string{"refs/heads/", "refs/remotes/", "refs/notes/"} {
		if want && strings.HasPrefix(ref, kind) {
			return true
		}
	}
	return false
}
