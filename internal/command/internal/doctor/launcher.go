package doctor

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/nexar-go/nexar/launch"
	"github.com/nexar-go/nexar/launch/meet"
)

// examineLauncher says which launcher started this process as Join would see it, and why not the others. Seeds overrule launchers.
func examineLauncher(env launch.Environment, haveSeeds bool) []Finding {
	if haveSeeds {
		text := "a seed is set, so Join asks no launcher"
		if p, _, err := launch.Find(env, env.Vars["NEXAR_LAUNCHER"]); err == nil && p.Launcher != "" && env.Vars["NEXAR_RANK"]+env.Vars["NEXAR_LOCAL_RANK"] == "" {
			text = fmt.Sprintf("a seed is set, so Join asks %s only for the rank, if the world has the same size: %v", p.Launcher, p)
		}
		return []Finding{{About: "launcher", Status: OK, Text: text}}
	}
	p, findings, err := launch.Find(env, env.Vars["NEXAR_LAUNCHER"])
	var list []Finding
	for _, f := range findings {
		switch {
		case f.Found:
			text := fmt.Sprintf("%s started this process as %s", f.Launcher, f.Text)
			n, _ := strconv.Atoi(env.Vars["NEXAR_LAUNCH_SEEDS"]) // Without it, or if it is malformed, which is another finding, one.
			if seeds := meet.Seeds(p, n); seeds != nil {
				text += "; its seeds are at " + strings.Join(seeds, ", ")
			}
			list = append(list, Finding{About: "launcher", Status: OK, Text: text})
		case err == nil || !strings.Contains(err.Error(), f.Text): // The error says the rest.
			list = append(list, Finding{About: "launcher", Status: Note, Text: fmt.Sprintf("not %s: %s", f.Launcher, f.Text)})
		}
	}
	switch {
	case err != nil:
		list = append(list, Finding{About: "launcher", Status: Fail, Text: err.Error(), Fix: "follow the message, or set NEXAR_SEEDS to the address of a seed"})
	case p.Launcher == "":
		list = append(list, Finding{About: "launcher", Status: Note, Text: "no launcher started this process as one of several"})
	}
	return list
}
