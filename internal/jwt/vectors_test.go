package jwt

import (
	"testing"
	"time"

	"github.com/counterfoil/counterfoil/internal/clock"
)

// The keys and signatures that the RFCs print: public to everybody.
var printed = map[string]struct{ key, token, payload string }{
	"RFC 7515 A.2, RS256": {
		key: `{"kty":"RSA","n":"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ","e":"AQAB"}`,
		token: "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ." +
			"cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw",
		payload: "{\"iss\":\"joe\",\r\n \"exp\":1300819380,\r\n \"http://example.com/is_root\":true}",
	},
	"RFC 7515 A.3, ES256": {
		key: `{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}`,
		token: "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ." +
			"DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
		payload: "{\"iss\":\"joe\",\r\n \"exp\":1300819380,\r\n \"http://example.com/is_root\":true}",
	},
	"RFC 8037 A.4, Ed25519": { //nolint:gosec // no credential: printed in an RFC
		key:     `{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}`,
		token:   "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg",
		payload: "Example of Ed25519 signing",
	},
}

func verifierOf(t testing.TB, key string, now time.Time) *Verifier {
	t.Helper()
	keys, err := ParseKeys([]byte(`{"keys":[` + key + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	v, err := New(Options{Keys: keys, Issuer: "joe", Audience: "us", Clock: clock.NewManual(now)})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestPrintedSignaturesVerify(t *testing.T) {
	t.Parallel()
	for name, p := range printed {
		payload, err := verifierOf(t, p.key, time.Unix(1300819000, 0)).open(p.token)
		if err != nil || string(payload) != p.payload {
			t.Errorf("%s: %q, %v", name, payload, err)
		}
		for other, q := range printed {
			if other != name {
				if _, err := verifierOf(t, q.key, time.Unix(1300819000, 0)).open(p.token); err == nil {
					t.Errorf("%s is accepted by the key of %s", name, other)
				}
			}
		}
	}
}

// TestOneChangedBitIsRefused turns every bit of every token, one after the other.
func TestOneChangedBitIsRefused(t *testing.T) {
	t.Parallel()
	for name, p := range printed {
		v := verifierOf(t, p.key, time.Unix(1300819000, 0))
		for i := range len(p.token) {
			for bit := range 8 {
				changed := []byte(p.token)
				changed[i] ^= 1 << bit
				if _, err := v.open(string(changed)); err == nil {
					t.Fatalf("%s: accepted with bit %d of byte %d turned", name, bit, i)
				}
			}
		}
	}
}

func FuzzVerify(f *testing.F) {
	for _, p := range printed {
		f.Add(p.token)
	}
	f.Add("..")
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	all := ""
	for _, p := range printed {
		if all != "" {
			all += ","
		}
		all += p.key
	}
	v := verifierOf(f, all, time.Unix(1300819000, 0))
	known := map[string]bool{}
	for _, p := range printed {
		known[p.token] = true
	}
	f.Fuzz(func(t *testing.T, token string) {
		if _, err := v.open(token); err == nil && !known[token] {
			t.Fatalf("accepted without anybody having signed it: %q", token)
		}
		if _, err := v.Claim(token, "sub"); err == nil {
			t.Fatalf("a claim is believed: %q", token)
		}
	})
}

func FuzzParseKeys(f *testing.F) {
	for _, p := range printed {
		f.Add(`{"keys":[` + p.key + `]}`)
	}
	f.Fuzz(func(t *testing.T, set string) {
		keys, err := ParseKeys([]byte(set))
		if err == nil && len(keys.list) == 0 {
			t.Fatal("a set without keys is accepted")
		}
		if err != nil {
			return
		}
		for _, k := range keys.list {
			_ = k.verify([]byte("a"), []byte("b")) // must not panic
		}
	})
}
