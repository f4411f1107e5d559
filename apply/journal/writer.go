package journal

import (
	"fmt"

	"github.com/aspengine/asp/internal/vfs"
)

// Writer appends to a journal that it made. One goroutine uses it.
type Writer struct {
	f    vfs.File
	enc  encoder
	size int64
	room int64 // bytes of zeros at the end of what is buffered
}

// Create makes the journal file name in dir, which must not have it, readable
// by nobody else, and buffers its header and Begin record. Nothing is written
// before Flush. several: more than one proposal is carried out by it.
func Create(dir vfs.Dir, name, txid, tag string, several bool, areas []Area) (*Writer, error) {
	if len(txid) > MaxTxID || len(tag) > MaxTag || len(areas) > MaxAreas {
		return nil, fmt.Errorf("create journal: %w", ErrTooLarge)
	}
	f, err := dir.Create(name, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create journal: %w", err)
	}
	w := &Writer{f: f}
	if several {
		w.enc.header(2)
	} else {
		w.enc.header(1)
	}
	w.enc.beginRecord(txid, tag, areas)
	return w, nil
}

// Intent buffers the steps and the Ready record.
func (w *Writer) Intent(steps []Step, emptied []string) error {
	if len(steps) > MaxSteps || len(emptied) > MaxSteps {
		return fmt.Errorf("write intent: %d steps: %w", len(steps), ErrTooLarge)
	}
	w.enc.stepsRecords(steps)
	w.enc.readyRecord(len(steps), emptied)
	return nil
}

// Room adds zeros behind the intent to the next Flush, at least n and up to the end
// of a block. The commit record is then written over them, as far as it has room: its
// sync has to write these blocks, and no new size and no new place of the file, for
// which ext4 and xfs would commit their own journals first (a third of the time on
// ext4). A reader takes zeros for a record that is not whole, as it takes the end of
// the file. Sparse room or fallocate would not do: the file system notes when those
// are first written.
func (w *Writer) Room(n int) {
	at := w.size + int64(len(w.enc.buf))
	w.room = (at+int64(n)+block-1)/block*block - at
	w.enc.buf = append(w.enc.buf, make([]byte, w.room)...)
}

const block = 4096

// Commit buffers the commit record.
func (w *Writer) Commit(evidence []byte) error {
	if len(evidence) > MaxEvidence {
		return fmt.Errorf("write commit record: %d bytes of evidence: %w", len(evidence), ErrTooLarge)
	}
	w.enc.commitRecord(evidence)
	return nil
}

// Flush writes what is buffered in one call. Not durable before Sync.
func (w *Writer) Flush() error {
	if _, err := w.f.WriteAt(w.enc.buf, w.size); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	w.size += int64(len(w.enc.buf)) - w.room
	w.room = 0
	w.enc.buf = w.enc.buf[:0]
	return nil
}

// Size returns the bytes of the records that were written, without the room behind
// them.
func (w *Writer) Size() int64 { return w.size }

// Cut shortens the file to size, taking back what was written after. The
// writer cannot be appended to afterwards.
func (w *Writer) Cut(size int64) error {
	if err := w.f.Truncate(size); err != nil {
		return fmt.Errorf("cut journal: %w", err)
	}
	return nil
}

// Sync makes what was flushed durable; not the name.
func (w *Writer) Sync() error {
	if err := w.f.Sync(); err != nil {
		return fmt.Errorf("sync journal: %w", err)
	}
	return nil
}

// Close releases the file.
func (w *Writer) Close() error { return w.f.Close() }

// WriteAttention makes the file name in dir with the list of open paths and
// syncs it (not the name). An empty list is written too.
func WriteAttention(dir vfs.Dir, name, txid string, open []Open) (err error) {
	f, err := dir.Create(name, 0o600)
	if err != nil {
		return fmt.Errorf("write attention list: %w", err)
	}
	defer func() {
		if cerr := f.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("write attention list: %w", cerr)
		}
	}()
	var e encoder
	e.header(1)
	e.attentionRecord(txid, open)
	if _, err = f.Write(e.buf); err == nil {
		err = f.Sync()
	}
	if err != nil {
		return fmt.Errorf("write attention list: %w", err)
	}
	return nil
}
