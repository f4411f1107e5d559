package commit

import (
	"strings"
	"testing"
)

func TestNamesAreOursOnlyInOneSpelling(t *testing.T) {
	nonce := strings.Repeat("0f", 8)
	for name, want := range map[string]bool{
		nonce + "-0": true, nonce + "-deadbeef": true,
		"": false, nonce: false, nonce + "-": false, nonce + "-123456789": false, nonce + "-x": false, nonce + "-1\n": false,
		nonce + "-1-2": false, strings.ToUpper(nonce) + "-1": false, nonce[1:] + "-1": false, "a" + nonce + "-1": false, "../" + nonce[3:] + "-1": false,
	} {
		if stagedName(name) != want {
			t.Errorf("staged name %q: %v", name, !want)
		}
	}
	for name, want := range map[string]bool{
		besidePrefix + nonce + nonce: true, newBesideName(): true,
		"": false, besidePrefix: false, besidePrefix + nonce: false, besidePrefix + nonce + nonce + "0": false,
		besidePrefix + nonce + nonce[1:] + "g": false, "x" + besidePrefix + nonce + nonce: false, besidePrefix + nonce + nonce[1:] + "\n": false,
	} {
		if besideName(name) != want {
			t.Errorf("beside name %q: %v", name, !want)
		}
	}
}
