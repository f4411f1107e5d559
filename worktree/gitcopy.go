//go:build linux

package worktree

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// copyGit gives a copied tree a repository of its own at tree/.git: everything
// of the user's but the objects, which are borrowed by an alternates file. git
// writes new objects, packs and prunes in its own store only; nothing it does
// there changes a byte of the user's; where nothing keeps the check from writing
// it may renew the time of an object that it would have written again, as git
// does with every store it borrows from. A linked work tree becomes an ordinary repository:
// the common directory's files, then the work tree's own over them.
func copyGit(ctx context.Context, sp *Spec, tree string, lend func(store string) string) ([]string, error) {
	dst := filepath.Join(tree, ".git")
	if err := os.Mkdir(dst, 0o700); err != nil {
		return nil, err
	}
	common := sp.common()
	var notes []string
	c, err := copyTree(ctx, common, dst, sp.Workers, 0, func(rel string) bool {
		if rel == "worktrees" || rel == "asp" {
			return true // other work trees' records would let git reach them
		}
		// A work tree inside a bare repository's directory is the workspace,
		// not a part of the repository.
		return within(sp.Root, filepath.Join(common, rel)) || isObjects(common, rel)
	})
	if err != nil {
		return nil, err
	}
	notes = append(notes, c.notes...)
	if err := lendObjects(common, dst, lend); err != nil {
		return nil, err
	}
	if sp.GitDir != common {
		if err := ownOver(ctx, sp.GitDir, dst); err != nil {
			return nil, err
		}
	}
	return notes, adjustConfig(dst)
}

// isObjects tells whether rel is an object store: the repository's, or that of a
// submodule kept below it.
func isObjects(gitDir, rel string) bool {
	if filepath.Base(rel) != "objects" {
		return false
	}
	_, err := os.Lstat(filepath.Join(gitDir, filepath.Dir(rel), "HEAD"))
	return err == nil
}

// lendObjects makes the object stores that copyTree left out, each an empty one
// that borrows from the user's and from what that one borrows itself: a
// relative name in the user's own list means nothing where we show the store.
func lendObjects(src, dst string, lend func(string) string) error {
	return filepath.WalkDir(dst, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dst, p)
		if err != nil {
			return err
		}
		switch rel {
		case "refs", "logs", "hooks":
			return fs.SkipDir
		}
		store := filepath.Join(src, rel, "objects")
		if st, err := os.Stat(store); err != nil || !st.IsDir() || !isObjects(src, filepath.Join(rel, "objects")) {
			return nil
		}
		if store, err = filepath.EvalSymlinks(store); err != nil {
			return err
		}
		var list strings.Builder
		for _, s := range append([]string{store}, alternates(store)...) {
			list.WriteString(quoteAlternate(lend(s)) + "\n")
		}
		own := filepath.Join(p, "objects")
		for _, d := range []string{own, filepath.Join(own, "info"), filepath.Join(own, "pack")} {
			if err := os.Mkdir(d, 0o777); err != nil {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(own, "info", "alternates"), []byte(list.String()), 0o666); err != nil {
			return err
		}
		return nil // submodules' repositories lie below
	})
}

// quoteAlternate writes a path as git reads it in an alternates file: C-quoted
// where it starts with a quote or holds a newline.
func quoteAlternate(p string) string {
	if !strings.HasPrefix(p, `"`) && !strings.ContainsAny(p, "\n#") {
		return p
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(p) + `"`
}

// ownOver copies a work tree's own git files (HEAD, index, its logs and refs)
// over the common ones.
func ownOver(ctx context.Context, gitDir, dst string) error {
	tmp := dst + ".own"
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return err
	}
	skip := map[string]bool{"gitdir": true, "commondir": true, "asp": true, "locked": true}
	if _, err := copyTree(ctx, gitDir, tmp, 2, 0, func(rel string) bool { return skip[rel] }); err != nil {
		return err
	}
	err := filepath.WalkDir(tmp, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(tmp, p)
		if err != nil || rel == "." {
			return err
		}
		to := filepath.Join(dst, rel)
		if d.IsDir() {
			err := os.Mkdir(to, 0o700)
			if errors.Is(err, fs.ErrExist) {
				return nil
			}
			return err
		}
		return os.Rename(p, to) // both are ours
	})
	if err != nil {
		return err
	}
	return removeTree(filepath.Dir(tmp), filepath.Base(tmp))
}

// adjustConfig makes sure that git takes the directory above for its work tree:
// a bare or separate repository's configuration may name another one, and an
// absolute name would lead a check's git to the live tree. The relative one is
// right wherever the copy is seen.
func adjustConfig(gitDir string) error {
	// A line that says where the work tree is, or that there is none. A section
	// and its first key may share a line.
	coreKey := regexp.MustCompile(`(?i)^(\s*(?:\[\s*core\s*\])?\s*)(bare|worktree)\s*(=.*)?$`)
	for _, name := range []string{"config", "config.worktree"} {
		p := filepath.Join(gitDir, name)
		b, err := os.ReadFile(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		var out strings.Builder
		core := false
		for line := range strings.Lines(string(b)) {
			if t := strings.TrimSpace(line); strings.HasPrefix(t, "[") {
				head, _, _ := strings.Cut(t, "]")
				core = strings.EqualFold(strings.TrimSpace(head[1:]), "core")
			}
			m := coreKey.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
			switch {
			case !core || m == nil:
				out.WriteString(line)
			case strings.EqualFold(m[2], "bare"):
				out.WriteString(m[1] + "bare = false\n")
			default:
				out.WriteString(m[1] + "worktree = ..\n")
			}
		}
		if out.String() == string(b) {
			continue
		}
		// The file is ours, a copy with one name.
		if err := os.WriteFile(p, []byte(out.String()), 0o666); err != nil {
			return err
		}
	}
	return nil
}

// alternates lists the object stores outside of objects that it borrows from,
// however deep: a check needs to read them even where they are hidden.
func alternates(objects string) []string {
	var out []string
	seen := map[string]bool{objects: true}
	todo := []string{objects}
	const most = 64
	for len(todo) > 0 && len(out) < most {
		dir := todo[0]
		todo = todo[1:]
		b, err := os.ReadFile(filepath.Join(dir, "info", "alternates"))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			p := strings.TrimRight(line, "\n")
			if p == "" || p[0] == '#' || p[0] == '"' {
				continue
			}
			if !filepath.IsAbs(p) {
				p = filepath.Join(dir, p)
			}
			if p, err = filepath.EvalSymlinks(p); err != nil || seen[p] {
				continue
			}
			seen[p] = true
			out, todo = append(out, p), append(todo, p)
		}
	}
	return out
}
