package wire

import (
	"encoding/binary"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A table of docs/wire.md has the cells of its rows, without backquotes, and its heading.
type table struct {
	under string
	rows  [][]string
}

func readDoc(t *testing.T) (tables []table) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "wire.md"))
	if err != nil {
		t.Fatal(err)
	}
	under, inside := "", false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") {
			under = strings.Trim(line, "# `")
		}
		if !strings.HasPrefix(line, "|") {
			inside = false
			continue
		}
		if !inside {
			tables = append(tables, table{under: under})
			inside = true
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i, c := range cells {
			cells[i] = strings.Trim(c, " `")
		}
		last := &tables[len(tables)-1]
		last.rows = append(last.rows, cells)
	}
	return tables
}

// rowsOf returns the rows of the table under a heading with a given first column.
func rowsOf(t *testing.T, under, column string) [][]string {
	t.Helper()
	for _, table := range readDoc(t) {
		if table.under == under && table.rows[0][0] == column {
			return table.rows[2:]
		}
	}
	t.Fatalf("docs/wire.md has no table of %q under %q", column, under)
	return nil
}

func number(t *testing.T, cell string) int {
	t.Helper()
	n, err := strconv.Atoi(cell)
	if err != nil {
		t.Fatalf("%q is no number", cell)
	}
	return n
}

// constants returns the constants of a type, counted by iota, in the files of the package.
func constants(t *testing.T, typ string) map[string]int {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]int)
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST {
				count(g, typ, found)
			}
		}
	}
	if len(found) == 0 {
		t.Fatalf("no constants of type %s", typ)
	}
	return found
}

// count adds the constants of a block if its first is typ = iota or iota + 1.
func count(g *ast.GenDecl, typ string, found map[string]int) {
	first := g.Specs[0].(*ast.ValueSpec)
	if id, ok := first.Type.(*ast.Ident); !ok || id.Name != typ {
		return
	}
	start := 0
	if _, plus := first.Values[0].(*ast.BinaryExpr); plus {
		start = 1
	}
	for i, s := range g.Specs {
		found[s.(*ast.ValueSpec).Names[0].Name] = start + i
	}
}

// checkNames requires that the table has exactly the constants of a type.
func checkNames(t *testing.T, rows [][]string, want map[string]int) {
	t.Helper()
	got := make(map[string]int)
	for _, row := range rows {
		got[row[0]] = number(t, row[1])
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("docs/wire.md has\n%v, the code\n%v", got, want)
	}
}

func TestDocNumbers(t *testing.T) {
	without := func(typ string, ends ...string) map[string]int {
		c := constants(t, typ)
		for _, end := range ends {
			delete(c, end)
		}
		return c
	}
	checkNames(t, rowsOf(t, "Frames between nodes", "Type"), without("Type", "typeEnd"))
	lanes := without("Lane", "Lanes")
	lanes["Relay"] = int(Relay)
	checkNames(t, rowsOf(t, "The preamble", "Lane"), lanes)
	checkNames(t, rowsOf(t, "TypeCredit", "Class"), without("Class", "Classes"))
	checkNames(t, rowsOf(t, "TypeRevoke", "Cause"), without("Cause", "causeEnd"))
	checkNames(t, rowsOf(t, "JoinRefusal", "Code"), without("RefusalCode"))
	checkNames(t, rowsOf(t, "Remote calls", "Type"), without("RemoteType", "remoteTypeEnd"))
	checkNames(t, rowsOf(t, "TypeRemoteAnswer", "Status"), without("RemoteStatus", "remoteStatusEnd"))
	join := make(map[string]int)
	for i, m := range joinMessages[1:] {
		join[reflect.TypeOf(m).Name()] = i + 1
	}
	checkNames(t, rowsOf(t, "Joining messages", "Message"), join)
}

func TestDocLimits(t *testing.T) {
	checkNames(t, rowsOf(t, "Limits", "Name"), map[string]int{
		"Version": Version, "PreambleSize": PreambleSize, "FrameSizeMax": FrameSizeMax, "PayloadMax": PayloadMax,
		"SegmentMax": SegmentMax, "BulkPipesMax": BulkPipesMax, "ResumeSize": ResumeSize, "GrantsMax": GrantsMax, "TextMax": TextMax, "WaitsMax": WaitsMax, "ViewMessageMax": ViewMessageMax, "HelloBytesMax": HelloBytesMax, "JoinBytesMax": JoinBytesMax,
		"proofBytes": proofBytes, "textBytesMax": textBytesMax, "nameBytesMax": nameBytesMax, "addrBytesMax": addrBytesMax,
		"addrsMax": addrsMax, "certificateBytesMax": certificateBytesMax, "signatureBytesMax": signatureBytesMax, "RemoteNameMax": RemoteNameMax, "TraceBytesMax": TraceBytesMax,
	})
}

// Every frame has the size in the document, and every field its offset: a frame with that field
// alone differs from an empty one only there.
func TestDocFrames(t *testing.T) {
	overview := rowsOf(t, "Frames between nodes", "Type")
	for _, k := range kinds() {
		row := overview[k.typ-1]
		size, err := Size(k.typ)
		if err != nil || number(t, row[2]) != size {
			t.Errorf("%s has %d bytes (%v), docs/wire.md says %s", row[0], size, err, row[2])
		}
		rows := rowsOf(t, row[0], "Offset")
		if rows[0][2] != "type" || number(t, rows[0][3]) != int(k.typ) || rows[0][1] != "1" {
			t.Errorf("%s begins with %q", row[0], rows[0])
		}
		checkFields(t, row[0], k.zero, func(f any) []byte { return k.write(f, nil)[:size] }, rows, 1)
	}
	checkFields(t, "Call", func() any { return new(Call) }, func(f any) []byte { return f.(*Call).append(nil) },
		rowsOf(t, "Call", "Offset"), 0)
	checkFields(t, "Preamble", func() any { return new(Preamble) }, func(f any) []byte { return f.(*Preamble).Append(nil) },
		rowsOf(t, "The preamble", "Offset"), 2)
	checkFields(t, "Resume", func() any { return new(Resume) }, func(f any) []byte { return f.(*Resume).Append(nil)[:ResumeSize-4] },
		rowsOf(t, "Resume", "Offset"), 0)
}

// Every field of a message of remote calls has the offset in the document.
func TestDocRemote(t *testing.T) {
	overview := rowsOf(t, "Remote calls", "Type")
	for _, k := range remoteKinds() {
		row := overview[k.typ-1]
		if number(t, row[2]) != k.size {
			t.Errorf("%s has %d bytes, docs/wire.md says %s", row[0], k.size, row[2])
		}
		rows := rowsOf(t, row[0], "Offset")
		if rows[0][2] != "type" || number(t, rows[0][3]) != int(k.typ) || rows[0][1] != "1" {
			t.Errorf("%s begins with %q", row[0], rows[0])
		}
		checkFields(t, row[0], k.zero, func(m any) []byte { return k.write(m, make([]byte, RemoteNameMax))[:k.size] }, rows, 1)
	}
}

// checkFields requires that the rows, from the first, describe the fields of a frame.
func checkFields(t *testing.T, name string, zero func() any, write func(any) []byte, rows [][]string, first int) {
	t.Helper()
	blank := write(zero())
	at := 0
	for i, row := range rows {
		offset, size, field := number(t, row[0]), number(t, row[1]), row[2]
		if offset != at {
			t.Errorf("%s: %s is at %d, the field before it ends at %d", name, field, offset, at)
		}
		at += size
		if i < first || field == "padding" {
			continue
		}
		f := zero()
		v := reflect.ValueOf(f).Elem().FieldByName(field)
		if !v.IsValid() {
			t.Errorf("%s has no field %s", name, field)
			continue
		}
		fill(v)
		if lo, hi := difference(blank, write(f)); lo < offset || hi >= at || v.Kind() != reflect.Int && (lo > offset || hi < at-1) {
			t.Errorf("%s: %s is at %d to %d, docs/wire.md has it at %d to %d", name, field, lo, hi, offset, at-1)
		}
	}
	if at != len(blank) {
		t.Errorf("%s has %d bytes, its fields in docs/wire.md have %d", name, len(blank), at)
	}
}

// difference returns the first and the last offset at which two frames differ, or -1.
func difference(a, b []byte) (lo, hi int) {
	lo, hi = -1, -1
	for i := range a {
		if a[i] != b[i] {
			if lo < 0 {
				lo = i
			}
			hi = i
		}
	}
	return lo, hi
}

// fill sets every bit of a field.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int:
		v.SetInt(PayloadMax) // A length of texts.
	case reflect.Int64:
		v.SetInt(-1)
	default:
		v.SetUint(1<<v.Type().Bits() - 1)
	}
}

// Every joining message has the encoding that the forms of its fields in the document define.
func TestDocJoinMessages(t *testing.T) {
	examples := slices.Concat(joinHellos, joinAnswers, joinRefusals, joinRequests, joinAdmitteds, joinProgresses, joinViews,
		joinReadies, joinUnreachables, joinFormeds, joinFaileds, []JoinMessage{JoinLeave{}}, joinPings, joinRenews, joinReneweds,
		joinInvites, joinExpects, joinLinkeds, joinQuiesces, joinQuiesceds,
		[]JoinMessage{JoinStatusRequest{}}, joinTraceRequests, joinTraces, joinNodeStatuses, joinWorldStatuses, joinRedirects, joinSeedHellos, joinLogs, joinLinks, joinForgets, joinExcludes, joinExcludeds,
		joinDifferences, joinConfirms, joinBehinds)
	seen := make(map[string]bool)
	for _, m := range examples {
		name := reflect.TypeOf(m).Name()
		seen[name] = true
		want := encodeJoin(t, m)
		fields := byDoc(t, name, reflect.ValueOf(m))
		got := binary.BigEndian.AppendUint32([]byte{joinType(m)}, uint32(len(fields)))
		if got = append(got, fields...); !slices.Equal(got, want) {
			t.Errorf("%#v: by docs/wire.md\n%x, by the code\n%x", m, got, want)
		}
	}
	if got, want := len(seen), len(joinMessages)-1; got != want {
		t.Errorf("%d of %d messages are tested", got, want)
	}
}

// byDoc encodes a message by its table in the document.
func byDoc(t *testing.T, name string, v reflect.Value) (b []byte) {
	t.Helper()
	if v.NumField() == 0 {
		return nil
	}
	rows := rowsOf(t, name, "Field")
	sent := 0
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("wire") != "-" { // the last ones
			sent++
		}
	}
	if len(rows) != sent {
		t.Fatalf("%s has %d fields, docs/wire.md has %d", name, sent, len(rows))
	}
	for i, row := range rows {
		if field := v.Type().Field(i).Name; row[0] != field {
			t.Fatalf("field %d of %s is %s, docs/wire.md has %s", i, name, field, row[0])
		}
		b = appendForm(t, b, row[1], v.Field(i))
	}
	return b
}

func appendForm(t *testing.T, b []byte, form string, v reflect.Value) []byte {
	t.Helper()
	be := binary.BigEndian
	switch form {
	case "flag":
		if v.Bool() {
			return append(b, 1)
		}
		return append(b, 0)
	case "u8":
		return append(b, byte(v.Uint()))
	case "u16":
		return be.AppendUint16(b, uint16(v.Uint()))
	case "u32":
		return be.AppendUint32(b, uint32(v.Uint()))
	case "i32":
		return be.AppendUint32(b, uint32(v.Int()))
	case "u64":
		return be.AppendUint64(b, v.Uint())
	case "id", "hash":
		for i := range v.Len() {
			b = append(b, byte(v.Index(i).Uint()))
		}
		return b
	case "ranks":
		b = be.AppendUint32(b, uint32(v.Len()))
		for i := range v.Len() {
			b = be.AppendUint32(b, uint32(v.Index(i).Uint()))
		}
		return b
	case "bytes":
		return append(be.AppendUint16(b, uint16(v.Len())), v.Bytes()...)
	case "text":
		return append(be.AppendUint16(b, uint16(v.Len())), v.String()...)
	case "texts":
		b = append(b, byte(v.Len()))
		for i := range v.Len() {
			b = appendForm(t, b, "text", v.Index(i))
		}
		return b
	case "nodes":
		b = be.AppendUint32(b, uint32(v.Len()))
		for i := range v.Len() {
			b = append(b, byDoc(t, "Node", v.Index(i))...)
		}
		return b
	case "candidates":
		b = append(b, byte(v.Len()))
		for i := range v.Len() {
			b = append(b, byDoc(t, "Candidate", v.Index(i))...)
		}
		return b
	case "endpoints":
		b = append(b, byte(v.Len()))
		for i := range v.Len() {
			b = append(b, byDoc(t, "Endpoint", v.Index(i))...)
		}
		return b
	}
	t.Fatalf("unknown form %q", form)
	return nil
}
