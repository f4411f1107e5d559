package editplan

import (
	"strings"

	"github.com/aspengine/asp/internal/canon"
	"github.com/aspengine/asp/internal/refusal"
	"github.com/aspengine/asp/seam/wire"
)

// The wire has no member for a mode. What an operation asks of the executable
// bit travels as an annotation {"message":"mode 100755","data":{"mode":"100755"}};
// both members must say the same, so that a remark that happens to speak of
// modes changes nothing.
const modeWord = "mode "

func modeAnnotation(m ModeChange) wire.Annotation {
	mode := "100644"
	if m == ModeExec {
		mode = "100755"
	}
	return wire.Annotation{Message: modeWord + mode, Data: canon.ObjectOf(canon.Member{Key: "mode", Value: canon.StringOf(mode)})}
}

// modeOf reads the mode that the annotations of operation op ask for.
func modeOf(c wire.DocumentChange, op int) (ModeChange, refusal.List) {
	asked := ModeKeep
	var out refusal.List
	for _, a := range c.Annotations {
		data, ok := a.Data.Get("mode")
		if !ok || data.Kind() != canon.String {
			continue
		}
		if said, ok := strings.CutPrefix(a.Message, modeWord); !ok || said != data.Str() {
			continue
		}
		m := ModeKeep
		switch data.Str() {
		case "100644":
			m = ModePlain
		case "100755":
			m = ModeExec
		default:
			out = append(out, refusal.New(refusal.UnsupportedOperation, c.Path, op, "mode %.20q: only 100644 and 100755 can be asked for", data.Str()))
			continue
		}
		if asked != ModeKeep && asked != m {
			out = append(out, refusal.New(refusal.BadMessage, c.Path, op, "two annotations ask for different modes"))
		}
		asked = m
	}
	if asked != ModeKeep && c.Kind == wire.KindDelete {
		out = append(out, refusal.New(refusal.BadMessage, c.Path, op, "a deleted file takes no mode"))
	}
	return asked, out
}
