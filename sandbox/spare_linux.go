package sandbox

import "sync"

// Spare is a child half that is started before it is known what to run: a process
// and its namespaces take about a third of a launch, and the time in which a
// candidate is made is enough for them. It waits, without any order, and holds
// nothing but its namespaces. It serves one launch, by Spec.Spare, which treats
// it as it does one that it starts itself: order, proof and verdict come after.
//
// Whoever makes one must Close it, used or not. Safe for concurrent use; a nil
// Spare is none.
type Spare struct {
	namespaces, netOff bool
	started            chan struct{} // closed when half and err are set

	mu   sync.Mutex
	half *half
	err  error
	gone bool // taken or closed
}

// NewSpare starts one in the background for a launch without network on a machine
// of which Probe said caps. Without namespaces it is nil: such a process would
// have nothing to prepare. It cannot fail: what could not be started is told to
// the launch that takes it.
func NewSpare(caps Caps) *Spare {
	if !caps.Namespaces() {
		return nil
	}
	s := &Spare{namespaces: true, netOff: caps.NetNS.Answer == Yes, started: make(chan struct{})}
	go func() {
		defer close(s.started)
		s.half, s.err = spawn(s.namespaces, s.netOff, Stdio{})
	}()
	return s
}

// take hands the process over if it fits, once. Both results are nil where it
// does not.
func (s *Spare) take(namespaces, netOff bool, io Stdio) (*half, error) {
	if s == nil || namespaces != s.namespaces || netOff != s.netOff || io != (Stdio{}) {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return nil, nil
	}
	s.gone = true
	<-s.started
	return s.half, s.err
}

// Close ends the process unless a launch took it, and waits for its death.
// Closing twice is harmless.
func (s *Spare) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return
	}
	s.gone = true
	if <-s.started; s.half != nil {
		s.half.listen(0)
		s.half.kill()
		s.half.finish()
	}
}
