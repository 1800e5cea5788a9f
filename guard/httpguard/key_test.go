package httpguard

import (
	"strings"
	"testing"
)

func FuzzKey(f *testing.F) {
	for _, seed := range []string{"a", `"a"`, `"a\"b"`, `"`, "", "a b", "é", `"\\"`, `""`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		key, err := parseKey(value)
		if err != nil {
			if key != "" {
				t.Errorf("a refused key is %q", key)
			}
			return
		}
		if key == "" || len(key) > MaxKey || strings.ContainsFunc(key, func(c rune) bool { return c < ' ' || c > '~' }) {
			t.Fatalf("accepted key %q", key)
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if again, err := parseKey(quoted); err != nil || again != key {
			t.Errorf("the quoted spelling of %q gives %q, %v", key, again, err)
		}
	})
}
