//race:none it starts no goroutine

package callsite

import "testing"

func TestKindOf(t *testing.T) {
	for _, test := range []struct {
		function, file string
		kind           int
		name           string
	}{
		{module + ".AllReduce[...]", "nexar/collective.go", library, "all_reduce"},
		{module + ".AllReduce[go.shape.[]github.com/a/b.T]", "nexar/collective.go", library, "all_reduce"},
		{module + ".(*Comm).Barrier", "nexar/comm.go", library, "barrier"},
		{module + ".(*Handle).Wait", "nexar/async.go", library, "wait"},
		{module + ".TestSend", "nexar/send_test.go", program, "test_send"},
		{module + "_test.ExampleSend", "nexar/example_test.go", program, "example_send"},
		{module + "/internal/engine.(*Op).Wait", "engine/op.go", library, "wait"},
		{module + "/examples/train.main", "train/main.go", program, "main"},
		{module + "-tools/x.F", "x/x.go", program, "f"},
		{"main.(*trainer[...]).step", "/home/me/train/main.go", program, "step"},
		{"gopkg.in/yaml%2ev3.Marshal", "yaml.go", program, "marshal"},
		{"myapp/train.Step", "myapp/train/step.go", program, "step"},
		{"sync.(*Once).Do", "sync/once.go", other, "do"},
		{"net/http.(*Server).Serve", "net/http/server.go", other, "serve"},
		{"runtime.main", "runtime/proc.go", other, "main"},
	} {
		if kind, name := kindOf(test.function, test.file, "myapp"), snake(test.function); kind != test.kind || name != test.name {
			t.Errorf("%s in %s: kind %d, name %q; want %d, %q", test.function, test.file, kind, name, test.kind, test.name)
		}
	}
	if isCall(module+"/internal/relay.(*Endpoint).ReadFrom") || !isCall(module+"/grid.New") {
		t.Error("calls of internal packages count, or those of others do not")
	}
}
