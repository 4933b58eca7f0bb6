package nexar

import (
	"fmt"
	"slices"

	"github.com/nexar-go/nexar/internal/settings"
)

// allTransports are those that Config.Transports may name.
func allTransports() []string { return settings.Defaults[Config]().Transports }

// The variables by which TCP, and the protection of what goes over it, are
// switched off. Both are on by default.
const (
	sidecarVariable = envPrefix + "ENABLE_TCP_BULK_SIDECAR"
	encryptVariable = envPrefix + "ENCRYPT_BULK_TRANSPORT"
)

// switchedOn reads a variable that is 0 or 1, or empty, which is 1.
func switchedOn(name, value string) (bool, error) {
	if value == "" {
		return true, nil
	}
	on, err := settings.Truth(value)
	if err != nil {
		return false, fmt.Errorf("%w: %s=%q: %w", ErrConfig, name, value, err)
	}
	return on, nil
}

// withSidecar takes TCP out of a list from the environment if the variable,
// which may be empty, says so. An empty list stands for all transports.
func withSidecar(list []string, value string) ([]string, error) {
	on, err := switchedOn(sidecarVariable, value)
	if on || err != nil {
		return list, err
	}
	if len(list) == 0 {
		list = allTransports()
	}
	list = slices.DeleteFunc(list, func(t string) bool { return t == "tcp" })
	if len(list) == 0 {
		list = []string{"quic"}
	}
	return list, nil
}

// plainBulk is what two variables of the opposite meaning say together: plain
// says what the one makes of PlainBulk.
func plainBulk(plain bool, vars map[string]string) (bool, error) {
	name, value := variable("PlainBulk"), vars[encryptVariable]
	encrypt, err := switchedOn(encryptVariable, value)
	if value == "" || err != nil {
		return plain, err
	}
	if vars[name] != "" && plain == encrypt {
		return false, fmt.Errorf("%w: %s=%s contradicts %s=%s: set one of them", ErrConfig, encryptVariable, value, name, vars[name])
	}
	return !encrypt, nil
}

// agreeOnBulk lets nobody be overruled silently where it is about protection: it
// finds a program that does without where the environment asks for it.
func agreeOnBulk(program, environment bool, vars map[string]string) error {
	for _, name := range []string{variable("PlainBulk"), encryptVariable} {
		if value := vars[name]; program && !environment && value != "" {
			return fmt.Errorf("%w: %s=%s: but the program sets PlainBulk", ErrConfig, name, value)
		}
	}
	return nil
}
