package wire

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape returns text with every character that a terminal or log would not show
// as it is replaced by the escape that Go source has for it: \x1b, \n, \xff. It
// is for text from another process that goes into an error or to a terminal.
// The result stands for the text but does not identify it, since backslashes stay
// as they are.
func Escape(text string) string {
	if printable(text) {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		_, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case r == utf8.RuneError, !unicode.IsPrint(r):
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
