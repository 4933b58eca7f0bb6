package nexar

import "github.com/nexar-go/nexar/internal/inspect"

// A Report says what this machine offers to nexar, and a Problem is what is wrong
// with it, how to mend that, and whether nexar does not work because of it.
type (
	Report  = inspect.Report
	Problem = inspect.Problem
)

// Inspect opens a socket as Join would with these settings, and says what it
// finds. The error is a malformed setting.
func Inspect(cfg Config) (Report, error) {
	cfg, err := cfg.fill()
	if err != nil {
		return Report{}, opError("inspect", err)
	}
	return inspect.Machine(cfg.Listen, cfg.Advertise, cfg.Transports), nil
}
