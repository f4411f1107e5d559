package sandbox

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fill gives every field of v a value of its own, so that one that is not told
// is missed.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if !v.Type().Field(i).IsExported() {
				continue // stays with the parent
			}
			fill(v.Field(i), n)
		}
	case reflect.Func: // stays with the parent
	case reflect.Pointer:
		if v.Type() == reflect.TypeFor[*Spare]() || v.Type() == reflect.TypeFor[*Ends]() {
			return // stays with the parent
		}
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 2 {
			k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(k, n)
			fill(e, n)
			v.SetMapIndex(k, e)
		}
	case reflect.String:
		v.SetString("\xff\n" + strconv.Itoa(*n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8:
		v.SetUint(uint64(*n % 250))
	case reflect.Uint64:
		v.SetUint(^uint64(0) - uint64(*n))
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(-*n))
	default:
		panic(v.Kind())
	}
}

func messages() []message { return []message{new(order), new(goAhead), new(report)} }

// Every field of every message arrives, and nothing behind it is read.
func TestWireTellsEveryField(t *testing.T) {
	var b bytes.Buffer
	var said []message
	for range 2 {
		for _, m := range messages() {
			n := 0
			fill(reflect.ValueOf(m).Elem(), &n)
			if err := tell(&b, m); err != nil {
				t.Fatal(err)
			}
			said = append(said, m)
		}
		for _, m := range messages() { // zero values too
			if err := tell(&b, m); err != nil {
				t.Fatal(err)
			}
			said = append(said, m)
		}
	}
	for _, want := range said {
		got := reflect.New(reflect.TypeOf(want).Elem()).Interface().(message)
		if err := hear(&b, got); err != nil {
			t.Fatal(err)
		}
		if !cmp.Equal(want, got, cmp.AllowUnexported(Spec{})) {
			t.Errorf("told and heard differ:\n%s", cmp.Diff(want, got, cmp.AllowUnexported(Spec{})))
		}
	}
	if err := hear(&b, new(goAhead)); !errors.Is(err, io.EOF) {
		t.Errorf("after the last message: %v", err)
	}
}

// A frame that is cut off, padded or damaged is an error, never a panic or a
// message made of a part.
func FuzzWire(f *testing.F) {
	for i, m := range messages() {
		n := 0
		fill(reflect.ValueOf(m).Elem(), &n)
		var b bytes.Buffer
		if err := tell(&b, m); err != nil {
			f.Fatal(err)
		}
		f.Add(i, b.Bytes())
		f.Add(i, b.Bytes()[:b.Len()/2])
	}
	f.Add(0, []byte{255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, which int, b []byte) {
		ms := messages()
		m := ms[uint(which)%uint(len(ms))]
		if err := hear(bytes.NewReader(b), m); err != nil {
			return
		}
		var out bytes.Buffer
		if err := tell(&out, m); err != nil {
			t.Fatal(err)
		}
		again := reflect.New(reflect.TypeOf(m).Elem()).Interface().(message)
		if err := hear(&out, again); err != nil || !cmp.Equal(m, again, cmp.AllowUnexported(Spec{})) {
			t.Errorf("heard again: %v\n%s", err, cmp.Diff(m, again, cmp.AllowUnexported(Spec{})))
		}
	})
}
