package launch

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

const (
	maxPMIMessage = 8192 // bytes of an answer
	maxPMIFields  = 64   // of an answer
	maxExcerpt    = 128  // bytes of a message in an error

	// maxPMILine is the size of the buffers for a line in the process managers of MPICH. Slurm reads this much at once and takes
	// it for one request.
	maxPMILine = 1024
)

// A field is a part of a message: name=value.
type field struct{ name, value string }

// A request is sent to the process manager. Its parts have only bytes that checkPMI allows.
type request struct {
	cmd    string
	fields []field
}

// encode returns the request as PMI-1 or PMI-2 sends it: fields that end by a space, the last one by a newline, or fields
// that end by a semicolon, after their length as six characters.
func (r request) encode(version int) string {
	var b strings.Builder
	b.WriteString("cmd=" + r.cmd)
	separator := " "
	if version == 2 {
		separator = ";"
	}
	for _, f := range r.fields {
		b.WriteString(separator + f.name + "=" + f.value)
	}
	if version == 2 {
		return fmt.Sprintf("%6d%s;", b.Len()+1, b.String())
	}
	return b.String() + "\n"
}

// A message is an answer of the process manager.
type message struct {
	cmd    string
	fields []field
	raw    string // all bytes read, also if they are no message
}

// get returns the value of a field, or "".
func (m message) get(name string) string {
	for _, f := range m.fields {
		if f.name == name {
			return f.value
		}
	}
	return ""
}

// decode reads one answer of PMI-1 or PMI-2. It reads at most maxPMIMessage bytes, the size of the buffer of r.
func decode(r *bufio.Reader, version int) (message, error) {
	if version == 2 {
		return decode2(r)
	}
	line, err := r.ReadSlice('\n')
	m := message{raw: string(line)}
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return m, fmt.Errorf("the line of the process manager has more than %d bytes", maxPMIMessage)
	case errors.Is(err, io.EOF) && len(line) > 0:
		return m, io.ErrUnexpectedEOF
	case err != nil:
		return m, err
	}
	return m, m.parse(m.raw[:len(m.raw)-1], ' ')
}

func decode2(r *bufio.Reader) (m message, err error) {
	const prefix = 6
	text := make([]byte, prefix)
	n, err := io.ReadFull(r, text)
	if m.raw = string(text[:n]); err != nil {
		return m, err
	}
	// Slurm pads at the end, MPICH at the front.
	size, err := strconv.ParseUint(strings.Trim(m.raw, " "), 10, 32)
	if err != nil || size > maxPMIMessage-prefix {
		rest, _ := r.Peek(min(r.Buffered(), maxExcerpt))
		m.raw += string(rest)
		return m, fmt.Errorf("the message of the process manager has the length prefix %+q: expected a number up to %d in six characters", text, maxPMIMessage-prefix)
	}
	body := make([]byte, size)
	n, err = io.ReadFull(r, body)
	m.raw += string(body[:n])
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return m, err
	}
	return m, m.parse(string(body), ';')
}

// parse sets cmd and fields. In PMI-1 a backslash takes away the meaning of the next byte. A word without "=" is ignored: it
// belongs to a text with spaces, and some process managers do not escape them.
func (m *message) parse(text string, separator byte) error {
	if err := printable(text); err != nil {
		return err
	}
	if !strings.HasPrefix(text, "cmd=") {
		return errors.New(`the message of the process manager does not begin with "cmd="`)
	}
	for word := range words(text, separator) {
		name, value, found := strings.Cut(word, "=")
		switch {
		case !found:
		case m.has(name):
			return fmt.Errorf("the message of the process manager has %s twice", excerpt(name))
		case len(m.fields) == maxPMIFields:
			return fmt.Errorf("the message of the process manager has more than %d fields", maxPMIFields)
		default:
			m.fields = append(m.fields, field{name, value})
		}
	}
	m.cmd = m.get("cmd")
	return nil
}

func (m *message) has(name string) bool {
	for _, f := range m.fields {
		if f.name == name {
			return true
		}
	}
	return false
}

// words yields the parts of text between separators, without escapes.
func words(text string, separator byte) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		word := make([]byte, 0, len(text))
		for i := 0; i <= len(text); i++ {
			switch {
			case i == len(text) || text[i] == separator:
				if len(word) > 0 && !yield(string(word)) {
					return
				}
				word = word[:0]
			case text[i] == '\\' && separator == ' ' && i+1 < len(text):
				i++
				word = append(word, text[i])
			default:
				word = append(word, text[i])
			}
		}
	}
}

// printable returns an error that names the first byte that is not printable ASCII.
func printable(text string) error {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' {
			return fmt.Errorf("byte %d is %#02x: expected printable ASCII", i, c)
		}
	}
	return nil
}

// checkPMI returns an error if a key or value cannot be sent unchanged in both versions.
func checkPMI(text string) error {
	if text == "" {
		return errors.New("it is empty: expected at least one byte")
	}
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c > '~' || c == ';' || c == '\\' {
			return fmt.Errorf(`byte %d is %#02x: expected printable ASCII without space, ";" and "\"; encode it, as by base64`, i, c)
		}
	}
	return nil
}

// excerpt returns the beginning of an answer, quoted. It leaves out a value of the key-value space, which can be a secret.
func excerpt(text string) string {
	shown := text
	if i := strings.Index(shown, "value="); i >= 0 {
		shown = shown[:i+len("value=")]
	}
	if len(shown) > maxExcerpt {
		shown = shown[:maxExcerpt]
	}
	if len(shown) < len(text) {
		return fmt.Sprintf("%+q and %d more bytes", shown, len(text)-len(shown))
	}
	return fmt.Sprintf("%+q", shown)
}
