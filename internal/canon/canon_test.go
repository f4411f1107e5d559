package canon_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aspengine/asp/internal/canon"
)

func parse(t *testing.T, s string) canon.Value {
	t.Helper()
	v, err := canon.Parse([]byte(s), canon.Limits{})
	if err != nil {
		t.Fatalf("Parse(%.100q): %v", s, err)
	}
	return v
}

// TestKnownAnswers holds the digests that the contract gives.
func TestKnownAnswers(t *testing.T) {
	changeset := parse(t, `{"baseline":{"rev":"tree:x"},"changes":[{"path":"src/a&b<c>\u2028 \u00fc \ud83d\ude00 \u0008\u000c\u0001\u007f\\\".ts","kind":"create","after":"blob:sha256:aa"}]}`)
	d := canon.Digest(changeset)
	if got, want := hex.EncodeToString(d[:]), "1eb7ee33f6a37cd187f8fa8ae58f8278db454d0efe5dac17ee1202fa449e12b1"; got != want {
		t.Errorf("changeset digest %s, want %s\n%s", got, want, changeset.Bytes())
	}
	type entry struct {
		Blob string `json:"blobId"`
		Path string `json:"path"`
		Size int64  `json:"size"`
	}
	tree, err := canon.From([]entry{
		{"blob:sha256:d4951ddae668b2dcd926c2df95c45f7e22ccafe58493e63b2d2c938752044db7", "src/dogfood.ts", 39},
		{"blob:sha256:f8a4738c6ecb52481d9f29eeb26c4f51383bd30e17afa215c65b919b6b3b053a", "tsconfig.json", 88},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := canon.DigestText(tree), "sha256:f5425825927b8ae60621322e6005e0abe76dfd1d9eeb3a759f268d3c25ddb2fa"; got != want {
		t.Errorf("tree digest %s, want %s", got, want)
	}
}

func TestCanonicalForm(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{` { "b" : 1 , "a" : [ true , null , false ] } `, `{"a":[true,null,false],"b":1}`},
		{`"\u003c\u003E&\u2028\u2029\u007f\/"`, "\"<>&\u2028\u2029\x7f/\""},
		{`"\u0000\u001f\b\t\n\f\r\"\\"`, `"\u0000\u001f\b\t\n\f\r\"\\"`},
		// U+10000 is a surrogate pair and sorts before U+FB33 and U+E000.
		{"{\"\ufb33\":1,\"\U00010000\":2,\"\ue000\":3,\"\u20ac\":4,\"a\":5,\"\":6}", "{\"\":6,\"a\":5,\"\u20ac\":4,\"\U00010000\":2,\"\ue000\":3,\"\ufb33\":1}"},
		{`[0,-0,1.0,1e3,-1.50,1E21,1e-6,1e-7,0.1e1,333333333.33333329,9007199254740993,123456789012345678901234567890]`,
			`[0,0,1,1000,-1.5,1e+21,0.000001,1e-7,1,333333333.3333333,9007199254740993,123456789012345678901234567890]`},
		{`[5e-324,1.7976931348623157e308,1e-100,-0.0]`, `[5e-324,1.7976931348623157e+308,1e-100,0]`},
		{`[]`, `[]`}, {`{}`, `{}`}, {`""`, `""`},
	} {
		got := string(parse(t, c.in).Bytes())
		if got != c.want {
			t.Errorf("canonical form of %q\n got %s\nwant %s", c.in, got, c.want)
		}
		if again := string(parse(t, got).Bytes()); again != got {
			t.Errorf("not a fixed point: %s then %s", got, again)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	many := strings.Repeat("[", 65) + strings.Repeat("]", 65)
	var wide strings.Builder
	wide.WriteByte('{')
	for i := range 40 {
		wide.WriteString(`"k` + strings.Repeat("x", i) + `":0,`)
	}
	for _, c := range []struct {
		in     string
		offset int
		reason string
	}{
		{``, 0, "end of input"}, {` `, 1, "end of input"}, {`{`, 1, "key expected"}, {`[`, 1, "without end"}, {`"a`, 2, "without end"}, {`"a\`, 3, "without end"},
		{`{"a":1,"a":2}`, 7, "duplicate key"}, {`{"a":1,"\u0061":2}`, 7, "duplicate key"}, {`{"a":1,"A":2}`, 7, "differ only in case"},
		{"{\"k\":1,\"\u212a\":2}", 7, "differ only in case"}, {`{"x":{"long":1,"LONG":2}}`, 15, "differ only in case"},
		{wide.String() + `"KX":1}`, len(wide.String()), "differ only in case"}, {wide.String() + `"kx":1}`, len(wide.String()), "duplicate"},
		{`"\ud800"`, 1, "lone surrogate"}, {`"\udc00\ud800"`, 1, "lone surrogate"}, {`"\ud800\u0041"`, 1, "lone surrogate"}, {`"\ud800x\udc00"`, 1, "lone surrogate"},
		{"\"a\xff\"", 2, "invalid UTF-8"}, {"\"\xed\xa0\x80\"", 1, "invalid UTF-8"}, {"\xef\xbb\xbf1", 0, "no JSON value"},
		{"\"a\nb\"", 2, "control"}, {"\"\\n\nb\"", 3, "control"}, {`"\x"`, 1, "unknown escape"}, {`"\u12g4"`, 1, "hexadecimal"}, {`"\u12"`, 1, "hexadecimal"},
		{`NaN`, 0, "no JSON value"}, {`Infinity`, 0, "no JSON value"}, {`-`, 1, "digit"}, {`01`, 1, "leading zero"}, {`-01`, 2, "leading zero"}, {`1.`, 2, "digit"}, {`.5`, 0, "no JSON value"},
		{`+1`, 0, "no JSON value"}, {`1e`, 2, "digit"}, {`1e999`, 0, "range of a double"}, {`0x1`, 1, "after the value"},
		{`1 2`, 2, "after the value"}, {`{} x`, 3, "after the value"}, {`[1,]`, 3, "no JSON value"}, {`{"a":1,}`, 7, "key expected"}, {`[1 2]`, 3, "comma"}, {`{"a" 1}`, 5, "colon"},
		{`nul`, 0, "no JSON value"}, {`truex`, 4, "after the value"}, {`{a:1}`, 1, "key expected"}, {`'a'`, 0, "no JSON value"}, {many, 64, "nesting"},
	} {
		_, err := canon.Parse([]byte(c.in), canon.Limits{})
		var e *canon.Error
		if !errors.As(err, &e) {
			t.Errorf("Parse(%.60q) = %v, want an error", c.in, err)
			continue
		}
		if e.Offset != c.offset || !strings.Contains(e.Reason, c.reason) {
			t.Errorf("Parse(%.60q) = %v, want %q at %d", c.in, err, c.reason, c.offset)
		}
	}
	if v := parse(t, strings.Repeat("[", 64)+strings.Repeat("]", 64)); v.Len() != 1 {
		t.Error("64 levels must do")
	}
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		in string
		l  canon.Limits
		ok bool
	}{
		{`[1,2]`, canon.Limits{Bytes: 5}, true}, {`[1,2]`, canon.Limits{Bytes: 4}, false},
		{`[1,2]`, canon.Limits{Values: 3}, true}, {`[1,2]`, canon.Limits{Values: 2}, false},
		{`[[]]`, canon.Limits{Depth: 2}, true}, {`[[]]`, canon.Limits{Depth: 1}, false}, {`[{}]`, canon.Limits{Depth: 1}, false},
	} {
		if _, err := canon.Parse([]byte(c.in), c.l); (err == nil) != c.ok {
			t.Errorf("Parse(%q, %+v) = %v", c.in, c.l, err)
		}
	}
}

func TestAllowCaseTwins(t *testing.T) {
	l := canon.Limits{AllowCaseTwins: true}
	var wide strings.Builder
	for i := range 40 {
		wide.WriteString(`"k` + strings.Repeat("x", i) + `":0,`)
	}
	for in, ok := range map[string]bool{
		`{"a":1,"A":2}`: true, `{"a":1,"a":2}`: false,
		`{` + wide.String() + `"KX":1}`: true, `{` + wide.String() + `"kx":1}`: false,
	} {
		if _, err := canon.Parse([]byte(in), l); (err == nil) != ok {
			t.Errorf("%.40s: %v", in, err)
		}
	}
}

func TestErrorTextIsBounded(t *testing.T) {
	long := strings.Repeat("k\u00e9\x01", 1<<16)
	key, _ := json.Marshal(long)
	in := strings.Repeat(`{`+string(key)+`:`, 40) + "x"
	_, err := canon.Parse([]byte(in), canon.Limits{})
	if err == nil || len(err.Error()) > 600 {
		t.Errorf("error text of %d bytes", len(err.Error()))
	}
	_, err = canon.Parse([]byte(`{"a":[0,{"odd key":tru}]}`), canon.Limits{})
	if want := `$.a[1]["odd key"]`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v does not name %s", err, want)
	}
}

func TestIntegersArePlainLiterals(t *testing.T) {
	for in, ok := range map[string]bool{"0": true, "-7": true, "9223372036854775807": true, "1e3": false, "1.0": false, "-0": false, "9223372036854775808": false, `"1"`: false} {
		if _, got := parse(t, in).Int(); got != ok {
			t.Errorf("Int of %s: %v, want %v", in, got, ok)
		}
	}
}

func TestMarshal(t *testing.T) {
	type inner struct {
		P *int        `json:"p"`
		V canon.Value `json:"v,omitempty"`
	}
	type msg struct {
		Z    string         `json:"z"`
		A    []inner        `json:"a"`
		E    []string       `json:"e,omitempty"`
		M    map[string]int `json:"m"`
		F    float64        `json:"f"`
		Skip int            `json:"-"`
	}
	got, err := canon.Marshal(msg{Z: "<&>\u2028", A: []inner{{V: canon.ArrayOf()}}, M: map[string]int{"b": 2, "a": 1}, F: 0.94})
	if want := "{\"a\":[{\"p\":null,\"v\":[]}],\"f\":0.94,\"m\":{\"a\":1,\"b\":2},\"z\":\"<&>\u2028\"}"; err != nil || string(got) != want {
		t.Errorf("Marshal = %s, %v\nwant %s", got, err, want)
	}
	if got, err := canon.Marshal(msg{}); err != nil || string(got) != `{"a":[],"f":0,"m":{},"z":""}` {
		t.Errorf("Marshal of nothing = %s, %v", got, err)
	}
	for _, bad := range []any{"\xff", struct{ NoTag int }{}, make(chan int), map[int]int{}, map[string]any{"\xff": 1}} {
		if got, err := canon.Marshal(bad); err == nil {
			t.Errorf("Marshal(%#v) = %s, want an error", bad, got)
		}
	}
}

func TestIndentedKeepsMeaning(t *testing.T) {
	v := parse(t, `{"b":[1,{"x":"\u2028"}],"a":{},"c":[]}`)
	got := v.AppendIndented(nil)
	if !canon.Equal(parse(t, string(got)), v) || !bytes.Contains(got, []byte("\n  \"b\": [\n    1,")) {
		t.Errorf("indented form:\n%s", got)
	}
}

func TestEqual(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{`{"a":1,"b":2}`, `{"b":2,"a":1}`, true}, {`{"a":1}`, `{"a":1,"b":null}`, false}, {`"\u0041"`, `"A"`, true},
		{`1`, `1.0`, true}, {`1`, `"1"`, false}, {`[1,2]`, `[2,1]`, false}, {`{"a":{"x":[]}}`, `{"a":{"x":{}}}`, false},
	} {
		if got := canon.Equal(parse(t, c.a), parse(t, c.b)); got != c.want {
			t.Errorf("Equal(%s, %s) = %v", c.a, c.b, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5e3,"\ud83d\ude00"],"b":null}`, `[true,false]`, `"\u2028"`, `-0.0`, `{"k":1,"K":2}`, "\"\xff\""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := canon.Parse(data, canon.Limits{})
		if err != nil {
			if len(err.Error()) > 900 {
				t.Fatalf("error text of %d bytes", len(err.Error()))
			}
			// What is JSON for the standard library is refused for one of our
			// own reasons only.
			stricter := []string{"duplicate key", "differ only in case", "lone surrogate", "invalid UTF-8", "nesting", "range of a double"}
			if json.Valid(data) && !slices.ContainsFunc(stricter, func(r string) bool { return strings.Contains(err.Error(), r) }) {
				t.Fatalf("refused %q: %v", data, err)
			}
			return
		}
		// What we accept is JSON for the standard library too, with the same meaning.
		var want, got any
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatalf("accepted %q, encoding/json says %v", data, err)
		}
		once := v.Bytes()
		if err := json.Unmarshal(once, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q became %s (%v)", data, once, err)
		}
		again, err := canon.Parse(once, canon.Limits{})
		if err != nil || !bytes.Equal(again.Bytes(), once) || !canon.Equal(v, again) {
			t.Fatalf("canonical form %s is no fixed point: %v", once, err)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	edit := `{"range":{"start":{"line":12,"char":13},"end":{"line":12,"char":18}},"rangeBasis":"blob:sha256:d4951ddae668b2dcd926c2df95c45f7e22ccafe58493e63b2d2c938752044db7","coordinateSystem":"utf16","newText":"request\n"},`
	in := []byte("[" + strings.Repeat(edit, (15<<20)/len(edit)) + "0]")
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := canon.Parse(in, canon.Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}

// A long array keeps its text; that must show nowhere but in the time.
func TestLongArraysAreWrittenAlike(t *testing.T) {
	var items []canon.Value
	for i := range 100 {
		items = append(items, canon.ObjectOf(canon.Member{Key: "b", Value: canon.IntOf(int64(i))}, canon.Member{Key: "a", Value: canon.StringOf("x\n\"")}))
	}
	long := canon.ArrayOf(items...)
	first := string(long.Bytes())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if got := string(long.Append([]byte("p"))); got != "p"+first {
				t.Errorf("written otherwise the second time: %.80s", got)
			}
		})
	}
	wg.Wait()
	v, err := canon.Parse([]byte(first), canon.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if got := string(canon.ArrayOf(v.At(99), long).Bytes()); got != "["+string(items[99].Bytes())+","+first+"]" {
		t.Errorf("inside another array it is %.80s", got)
	}
}
