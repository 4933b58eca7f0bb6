package command

import (
	"bytes"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/internal/command/internal/doctor"
	"github.com/nexar-go/nexar/transport"
)

// Hardware is what another command than cmd/nexar adds. The zero value adds nothing.
type Hardware struct {
	// Command is its name. The default is nexar.
	Command string

	// Transports are additional values of bench --transport. The error says why this host cannot use the transport.
	Transports map[string]func() (transport.Factory, error)

	// Devices are values of bench --device. A function returns a stream of the device for a rank, by its number among those
	// of the host, and one that closes both.
	Devices map[string]func(localRank int) (stream device.Stream, end func() error, err error)

	// Settings is a paragraph about variables of the hardware, for the help. Its lines begin with two spaces.
	Settings string

	// Locks names the links of Transports that lock memory, and how much they lock, for doctor. It is empty if none does.
	Locks string

	// Diagnose has a function for each kind of hardware, for doctor. It writes what this host has and lacks, and reports whether
	// the hardware can be used.
	Diagnose []Diagnosis
}

// A Diagnosis examines a kind of hardware.
type Diagnosis struct {
	Kind    string
	Examine func(w io.Writer) (usable bool)
}

// transports returns the values of bench --transport.
func (h Hardware) transports() []string {
	return append([]string{"auto", "mem", "shm", "tcp", "quic"}, slices.Sorted(maps.Keys(h.Transports))...)
}

// devices returns the values of bench --device.
func (h Hardware) devices() []string { return slices.Sorted(maps.Keys(h.Devices)) }

// named lets the help of commands name this command.
func (h Hardware) named(root *cobra.Command) {
	if h.Command == "" {
		return
	}
	example := regexp.MustCompile(`\bnexar (run|seed|status|token|bench|simulate|doctor|version)\b`)
	for _, cmd := range append(root.Commands(), root) {
		for _, text := range []*string{&cmd.Long, &cmd.Example} {
			*text = example.ReplaceAllString(*text, h.Command+" $1")
		}
	}
}

// benchHelp is the part of the help of bench about devices.
func (h Hardware) benchHelp() string {
	if len(h.Devices) == 0 {
		return ""
	}
	return `

DEVICES
  With --device the vectors are in memory of a device. The ranks of a host take its
  devices in turn. Only the operation is measured, not the copies of its vectors to
  the device and back for the verification. The table, the chart and the JSON name the
  device of rank 0. With --algorithms the cost, the choice and predicted_us are those
  for vectors in memory of the host, as the model knows no devices.`
}

// findings returns what doctor reports about hardware. Hardware that is missing is no failure.
func (h Hardware) findings() (list []doctor.Finding) {
	for _, d := range h.Diagnose {
		var text bytes.Buffer
		status := doctor.Note
		if d.Examine(&text) {
			status = doctor.OK
		}
		list = append(list, doctor.Finding{About: d.Kind, Status: status, Text: strings.TrimSpace(text.String())})
	}
	return list
}
