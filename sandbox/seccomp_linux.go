package sandbox

import (
	"math"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// table says which system calls there are for a command. It is data: the calls that are
// allowed, and those that are refused by another error than ENOSYS, or on purpose. A call that is in no
// row is answered as by a kernel that does not have it, whether anybody knows it or not. Every call
// is in one row only.
type table []row

// row is a group of calls with one answer.
type row struct {
	nrs   []uintptr
	errno unix.Errno  // 0: they are made where all conditions hold
	when  []condition // in this order; the first that does not hold has the answer
}

// condition is what one argument of a call has to be for the call to be made. Only the low 32
// bits are looked at, which is what the kernel takes of each argument that stands in the tables.
type condition struct {
	arg    int
	errno  unix.Errno // the answer where it does not hold
	noBits uint32     // none of these is set; or
	not    []uint32   // it is none of these; or
	only   []uint32   // it is one of these
}

func allow(nrs ...uintptr) row { return row{nrs: nrs} }

func refuse(errno unix.Errno, nrs ...uintptr) row { return row{nrs: nrs, errno: errno} }

func allowWhen(nr uintptr, when ...condition) row { return row{nrs: []uintptr{nr}, when: when} }

// newest is the highest number that was looked at when the tables were last revised. All
// architectures share their numbers from 424 on.
const newest = 471 // rseq_slice_yield

// Offsets in struct seccomp_data; the low half of an argument comes first on the
// little-endian machines that there are tables for.
const (
	offNr   = 0
	offArch = 4
	offArg0 = 16
)

func load(off uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: off}
}

func jump(op uint16, k uint32, jt, jf uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, Jt: jt, Jf: jf, K: k}
}

// answers is what the kernel does: with 0 it makes the call.
func answers(e unix.Errno) unix.SockFilter {
	k := uint32(unix.SECCOMP_RET_ALLOW)
	if e != 0 {
		k = unix.SECCOMP_RET_ERRNO | uint32(e)
	}
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k}
}

// span is a range of numbers with one answer, up to where the next span begins.
type span struct {
	from uint32
	*row
}

// spans cuts all numbers into ranges. Up to newest, those that are in no row are answered by
// rest. This is part of every launch, so it makes no map.
func (t table) spans(rest unix.Errno) []span {
	var (
		known        [newest + 1]*row
		above        []span
		others, none = &row{errno: rest}, &row{errno: unix.ENOSYS}
	)
	for i := range t {
		for _, nr := range t[i].nrs {
			if nr <= newest {
				known[nr] = &t[i]
			} else {
				above = append(above, span{uint32(nr), &t[i]}, span{uint32(nr) + 1, none})
			}
		}
	}
	out := make([]span, 0, 128)
	add := func(n uint32, r *row) {
		k := len(out) - 1
		if k < 0 || out[k].row != r && (out[k].errno != r.errno || len(out[k].when)+len(r.when) > 0) {
			out = append(out, span{n, r})
		}
	}
	for n, r := range known {
		if r == nil {
			r = others
		}
		add(uint32(n), r)
	}
	add(newest+1, none)
	slices.SortStableFunc(above, func(a, b span) int { return int(a.from) - int(b.from) })
	for i, s := range above {
		if s.row != none || i+1 == len(above) || above[i+1].from != s.from {
			add(s.from, s.row)
		}
	}
	return out
}

// tree appends to p a search of spans for the number in the accumulator, by halves: some ten
// instructions for any call, where a list takes as many as there are rows. Kernels from 5.11 on run it once for each
// number when it is put on, and remember which calls are made whatever their arguments; those
// cost nothing then.
func tree(p []unix.SockFilter, s []span) []unix.SockFilter {
	if len(s) == 1 {
		return s[0].leaf(p)
	}
	half := len(s) / 2
	at := len(p)
	p = tree(append(p, jump(unix.BPF_JGE, s[half].from, 0, 0)), s[:half])
	if low := len(p) - at - 1; low <= math.MaxUint8 {
		p[at].Jt = uint8(low)
	} else { // too far for a conditional jump
		p[at].Jf = 1
		p = slices.Insert(p, at+1, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JA, K: uint32(low)})
	}
	return tree(p, s[half:])
}

// leaf looks at the arguments and answers.
func (r *row) leaf(p []unix.SockFilter) []unix.SockFilter {
	for _, c := range r.when {
		p = append(p, load(offArg0+8*uint32(c.arg)))
		switch {
		case c.noBits != 0:
			p = append(p, jump(unix.BPF_JSET, c.noBits, 0, 1), answers(c.errno))
		case c.not != nil:
			for _, v := range c.not {
				p = append(p, jump(unix.BPF_JEQ, v, 0, 1), answers(c.errno))
			}
		default:
			for i, v := range c.only {
				p = append(p, jump(unix.BPF_JEQ, v, uint8(len(c.only)-i), 0))
			}
			p = append(p, answers(c.errno))
		}
	}
	return append(p, answers(r.errno))
}

// assemble turns a table of what is allowed into a filter program. Another architecture has other
// numbers and is refused whole; x32 is numbers so high that no row has them.
func assemble(arch uint32, t table) []unix.SockFilter {
	p := append(make([]unix.SockFilter, 0, 512), load(offArch), jump(unix.BPF_JEQ, arch, 1, 0), answers(unix.ENOSYS), load(offNr))
	return tree(p, t.spans(unix.ENOSYS))
}

// assembleSmall is the filter of a launch that is not isolated: what it does not name and what was known
// when it was revised may be done. Programs of 32 bits go on running: compat is their
// architecture and of its numbers other is about.
func assembleSmall(arch uint32, t table, compat uint32, other table) []unix.SockFilter {
	p := append(make([]unix.SockFilter, 0, 128), load(offArch), jump(unix.BPF_JEQ, arch, 0, 0), load(offNr))
	p = tree(p, t.spans(0))
	p[1].Jf = uint8(len(p) - 2)
	p = append(p, jump(unix.BPF_JEQ, compat, 1, 0), answers(unix.ENOSYS), load(offNr))
	return tree(p, other.spans(0))
}

// seccomp puts the filter of an isolated launch on the calling thread, which has
// no_new_privs set.
func seccomp() error {
	if auditArch == 0 {
		return fail(unix.ENOSYS, "filter system calls of %s", runtime.GOARCH)
	}
	return putFilter(assemble(auditArch, isolatedCalls()))
}

// filterSockets does so for one that is not isolated.
func filterSockets() error {
	if auditArch == 0 {
		return fail(unix.ENOSYS, "filter system calls of %s", runtime.GOARCH)
	}
	return putFilter(assembleSmall(auditArch, smallCalls(), compatArch, compatCalls()))
}

func putFilter(p []unix.SockFilter) error {
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(p)
	if e != 0 {
		return fail(e, "filter system calls")
	}
	return nil
}

// seccompAnswer asks without changing anything.
func seccompAnswer() Cap {
	if auditArch == 0 {
		return Cap{Answer: No, Detail: "no system call table for " + runtime.GOARCH}
	}
	action := uint32(unix.SECCOMP_RET_ERRNO)
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	if e != 0 {
		return answer(e)
	}
	return Cap{Answer: Yes}
}
