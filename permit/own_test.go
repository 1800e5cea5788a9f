package permit

import (
	"crypto/ed25519"
	"testing"
)

func TestOnlyTheVerySignatureThatWasMadeHereIsKnown(t *testing.T) {
	t.Parallel()
	pub, priv, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	message := []byte(`{"nonce_id":"1"}`)
	// Not a good signature: what says that it is one is the memory alone, and so it is seen where that is asked.
	signature := make([]byte, ed25519.SignatureSize)
	signature[7] = 1
	remember(priv, message, signature)
	changed := append([]byte(nil), signature...)
	changed[63] ^= 1
	for name, c := range map[string]struct {
		key                []byte
		message, signature []byte
		want               bool
	}{
		"the same":                      {pub, message, signature, true},
		"another key":                   {other, message, signature, false},
		"another message":               {pub, []byte(`{"nonce_id":"2"}`), signature, false},
		"a longer message":              {pub, append([]byte(`{"nonce_id":"1"}`), ' '), signature, false},
		"another signature":             {pub, message, changed, false},
		"a byte moved to the message":   {pub, append([]byte{signature[63]}, message...), signature[:63], false},
		"a byte moved to the signature": {pub, message[1:], append(append([]byte(nil), signature...), message[0]), false},
	} {
		if got := signedBy((*PublicKey)(c.key), c.message, c.signature); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
