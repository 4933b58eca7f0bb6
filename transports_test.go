package nexar

import (
	"errors"
	"strings"
	"testing"
)

// TestPlainBulk: two variables of opposite meaning control the encryption of payloads. Both may be
// set if they agree. A contradiction is an error, also between a variable that asks for encryption
// and the program.
func TestPlainBulk(t *testing.T) {
	noEnv(t)
	const encrypt, plain = "NEXAR_ENCRYPT_BULK_TRANSPORT", "NEXAR_PLAIN_BULK"
	for _, test := range []struct {
		plain, encrypt string
		program        bool
		want           bool
		err            string
	}{
		{"", "", false, false, ""},
		{"", "", true, true, ""},
		{"1", "", false, true, ""},
		{"0", "", false, false, ""},
		{"", "0", false, true, ""},
		{"", "1", false, false, ""},
		{"1", "0", false, true, ""},
		{"0", "1", false, false, ""},
		{"true", "false", true, true, ""},
		{"", "0", true, true, ""},
		{"1", "1", false, false, encrypt + `="1" contradicts ` + plain + `="1"`},
		{"0", "0", false, false, encrypt + `="0" contradicts ` + plain + `="0"`},
		{"1", "1", true, false, encrypt + `="1" contradicts ` + plain + `="1"`},
		{"", "1", true, false, encrypt + `="1": but the program sets PlainBulk`},
		{"0", "", true, false, plain + `="0": but the program sets PlainBulk`},
	} {
		t.Setenv(plain, test.plain)
		t.Setenv(encrypt, test.encrypt)
		cfg, err := Config{PlainBulk: test.program}.fill()
		switch {
		case test.err == "" && (err != nil || cfg.PlainBulk != test.want):
			t.Errorf("%+v: got %v, %v", test, cfg.PlainBulk, err)
		case test.err != "" && (!errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), test.err)):
			t.Errorf("%+v: error %v", test, err)
		}
	}
}
