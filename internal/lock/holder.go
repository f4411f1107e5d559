package lock

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Holder says who wrote the record of a queue file last. It is for people ("who
// holds it?"): nothing is ever decided by it.
type Holder struct {
	PID     int       `json:"pid"`
	Start   uint64    `json:"start"` // start time of the process in clock ticks since boot
	Host    string    `json:"host"`
	Command string    `json:"command"`
	Since   time.Time `json:"since"`
	// Alive tells whether a process with this id and this start time runs on
	// this host now. Set by ReadHolder, not stored.
	Alive bool `json:"-"`
}

// ReadHolder reads the record; false when nobody holds the lock through this
// queue file, or left no readable record.
func ReadHolder(queueFile string) (Holder, bool) {
	f, err := os.Open(queueFile)
	if err != nil {
		return Holder{}, false
	}
	defer f.Close()
	b := make([]byte, recordSize)
	n, err := f.ReadAt(b, recordOffset)
	if err != nil && !errors.Is(err, io.EOF) {
		return Holder{}, false
	}
	b = bytes.TrimRight(b[:n], "\x00")
	var h Holder
	if len(b) == 0 || json.Unmarshal(b, &h) != nil || h.PID <= 0 {
		return Holder{}, false
	}
	host, _ := os.Hostname()
	if start, err := startTime(h.PID); err == nil && start == h.Start && host == h.Host {
		h.Alive = true
	}
	return h, true
}

// record writes who we are. Failing to do so is no reason not to hold a lock.
func (q *queue) record() {
	h := Holder{PID: os.Getpid(), Since: time.Now().UTC()}
	h.Start, _ = startTime(h.PID)
	h.Host, _ = os.Hostname()
	if len(os.Args) > 0 {
		// The program and its first word only: further arguments may hold
		// what should not lie about.
		h.Command = filepath.Base(os.Args[0])
		if len(os.Args) > 1 {
			h.Command += " " + os.Args[1]
		}
		h.Command = cut(h.Command, 200)
	}
	h.Host = cut(h.Host, 200)
	b, err := json.Marshal(h)
	if err != nil || len(b) > recordSize {
		b = nil
	}
	q.writeRecord(b)
}

func (q *queue) clearRecord() { q.writeRecord(nil) }

func (q *queue) writeRecord(b []byte) {
	rec := make([]byte, recordSize)
	copy(rec, b)
	_, _ = q.f.WriteAt(rec, recordOffset)
}

func cut(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return s
}
