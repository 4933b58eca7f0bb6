package doctor

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/settings"
)

const prefix = "NEXAR_"

// secret is the variable with the token, whose value no finding contains, and secretFile that with the
// path of a file with the token.
const (
	secret     = "NEXAR_CLUSTER_TOKEN"
	secretFile = "NEXAR_CLUSTER_TOKEN_FILE"
)

// examineEnvironment checks each NEXAR_ variable, and then all together.
func examineEnvironment(environ []string) []Finding {
	var list []Finding
	values := map[string]string{}
	allowWeak, _ := settings.Truth(valueOf(environ, "NEXAR_ALLOW_WEAK_TOKEN"))
	for _, name := range nexarNames(environ) {
		f := examineVariable(name, valueOf(environ, name), allowWeak)
		if f.variable == "" && f.Status != Fail {
			values[name] = valueOf(environ, name)
		}
		list = append(list, f)
	}
	if err := checkSettings(values); err != nil {
		list = append(list, Finding{About: "environment", Status: Fail, Text: err.Error(), Fix: "correct one of the variables, or unset it"})
	}
	if len(list) == 0 {
		list = []Finding{{About: "environment", Status: OK, Text: "no " + prefix + " variable is set: all settings have their defaults"}}
	}
	return list
}

func examineVariable(name, value string, allowWeak bool) Finding {
	f := Finding{About: "environment", Status: OK, Text: name + "=" + shown(value)}
	for _, p := range nexar.CheckEnviron([]string{name + "=" + value}) {
		f.Status, f.Text, f.Fix = Warn, p.Text, p.Fix
		return f
	}
	err := checkSettings(map[string]string{name: value})
	token := value
	switch name {
	case secret:
		f.Text = fmt.Sprintf("%s is set, to %d characters", name, len(token))
		err = checkSettings(map[string]string{name: value, "NEXAR_ALLOW_WEAK_TOKEN": "1"})
	case secretFile:
		if token, err = nexar.ReadTokenFile(value); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		f.Text += fmt.Sprintf(" has a token of %d characters", len(token))
		f.token = token
	default:
		token = ""
	}
	if token != "" && err == nil {
		weak := nexar.CheckToken(token)
		switch {
		case weak == nil:
		case allowWeak:
			f.Status, f.Fix = Warn, "use a token of 'nexar token'"
			f.Text += ": not made by 'nexar token', so it may be guessed"
		default:
			err = fmt.Errorf("%s: %w", name, weak)
		}
	}
	if err != nil {
		f.Status, f.Text, f.Fix, f.variable = Fail, from(name, err), "correct it, or unset it", name
	}
	return f
}

// shown returns a value, quoted if it has spaces or unprintable characters.
func shown(value string) string {
	if q := strconv.Quote(value); strings.Contains(value, " ") || q != `"`+value+`"` {
		return q
	}
	return value
}

// from returns the text of err, beginning with the name of the variable.
func from(name string, err error) string {
	text := err.Error()
	return text[max(0, strings.Index(text, name)):]
}

// checkSettings returns the error of Join for these variables. The environment of the process is
// the same afterwards.
func checkSettings(values map[string]string) error {
	defer setEnvironment(values)()
	_, err := nexar.ConfigFromEnv()
	return err
}

// setEnvironment replaces the variables of nexar of this process. restore undoes that.
func setEnvironment(values map[string]string) (restore func()) {
	before := os.Environ()
	unset := func() {
		for _, name := range nexarNames(os.Environ()) {
			os.Unsetenv(name)
		}
	}
	unset()
	for name, value := range values {
		os.Setenv(name, value)
	}
	return func() {
		unset()
		for _, name := range nexarNames(before) {
			os.Setenv(name, valueOf(before, name))
		}
	}
}

// nexarNames returns the sorted names of the variables of nexar that are set.
func nexarNames(environ []string) []string {
	var names []string
	for _, pair := range environ {
		if name, value, _ := strings.Cut(pair, "="); strings.HasPrefix(name, prefix) && value != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func valueOf(environ []string, name string) string {
	for _, pair := range environ {
		if n, value, _ := strings.Cut(pair, "="); n == name {
			return value
		}
	}
	return ""
}
