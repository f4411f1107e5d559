// Package watch says which directories of a tree may have changed since they
// were listed. It is a hint that errs on one side: what it cannot vouch for it
// reports as lost, and its user walks.
//
// The kernel puts an event into the queue before the system call that made the
// change returns, so that reading the queue to its end sees every change that
// was made before the reading began: there is no thread of ours in between, and
// no file of ours that would have to be touched as a fence.
//
// inotify and not fanotify: a mark on a whole file system needs a privilege,
// hears everything else that happens there, and names directories by handles
// that have to be resolved by a race-prone second look. A watch for each
// directory costs some microseconds once.
//
// What no watch on a directory hears, and what its user has to make up for:
//
//   - stores into a shared mapping, until the mapping is gone (a close by a
//     writer is raised then);
//   - a write through another name of the same file, in a directory that is not
//     watched (files with several names are for the user to look at again; a
//     name made later outside of the tree is not heard of, nor is one in it that
//     is gone again before the user looks);
//   - what other machines do on a network file system, and what is done below
//     a stacked one: those are not watched at all;
//   - writes that pass by the file system: to its device, or through a file
//     handle that belongs to no name.
package watch

import "errors"

// ErrUnsupported says that this tree cannot be watched here: another operating
// system, a file system that others may change unheard, no /proc.
var ErrUnsupported = errors.New("cannot be watched")

// Options are the choices of whoever watches.
type Options struct {
	// Limit bounds the directories; 0 takes half of what the user may watch in
	// all, because editors need theirs.
	Limit int
	// Rules tells names whose change says something about more than their own
	// directory; an event on one loses the tree. nil: there are none.
	Rules func(name string) bool
}

// Changes is what happened since the last time. Paths are relative to the root,
// which is "".
type Changes struct {
	// Lost, if not empty, says why nothing can be told: the tree has to be
	// listed anew, by a new Tree.
	Lost string
	// Dirs are directories in which some name was made, removed, renamed or
	// written, or got other attributes.
	Dirs map[string]struct{}
	// Trees are paths where a directory came or went: whatever was known of them
	// and of everything below them is about another directory now. The directory
	// they lie in is among Dirs.
	Trees map[string]struct{}
}
