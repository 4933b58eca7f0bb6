//go:build linux

package rdma

import (
	"errors"
	"fmt"
	"os"
	"strconv"
)

// Variables of the environment that choose the device if Device, Port and GID of [Config] are zero.
// An empty variable is not set.
const (
	DeviceVariable = "NEXARHW_RDMA_DEVICE" // Config.Device
	PortVariable   = "NEXARHW_RDMA_PORT"   // Config.Port; it needs DeviceVariable
	GIDVariable    = "NEXARHW_RDMA_GID"    // Config.GID
)

// withVariables returns cfg with the device of the variables, unless cfg chooses one.
func (cfg Config) withVariables() (Config, error) {
	switch {
	case cfg.Port < 0:
		return cfg, fmt.Errorf("port %d: must be at least 1", cfg.Port)
	case cfg.Port != 0 && cfg.Device == "":
		return cfg, fmt.Errorf("port %d: needs the name of its device, Config.Device", cfg.Port)
	case cfg.Device != "" || cfg.GID != "":
		return cfg, nil
	}
	cfg.Device, cfg.GID = os.Getenv(DeviceVariable), os.Getenv(GIDVariable)
	text := os.Getenv(PortVariable)
	if text == "" {
		return cfg, nil
	}
	var err error
	if cfg.Port, err = strconv.Atoi(text); err != nil || cfg.Port < 1 {
		return cfg, fmt.Errorf("%s=%q: must be a number from 1 on", PortVariable, text)
	}
	if cfg.Device == "" {
		return cfg, errors.New(PortVariable + " needs " + DeviceVariable + ", the name of the device")
	}
	return cfg, nil
}
