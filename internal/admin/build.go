package admin

import (
	"runtime"
	"runtime/debug"
)

// Build says what program this is.
type Build struct {
	Version string `json:"version"`
	// Revision is the commit it was built from, with "+dirty" if files had been
	// changed; "unknown" outside of a checkout.
	Revision string `json:"revision"`
	Go       string `json:"go"`
	// Protos is the version of the xDS messages that the code was written for.
	Protos string `json:"protos"`
	OS     string `json:"os"`
	Arch   string `json:"arch"`
}

const protosModule = "github.com/envoyproxy/go-control-plane/envoy"

// ReadBuild describes the running program. version is what the linker was told,
// or empty: then the module's own version is used, if it has one.
func ReadBuild(version string) Build {
	b := Build{Version: version, Revision: "unknown", Go: runtime.Version(), Protos: "unknown", OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if ok {
		b.read(info)
	}
	if b.Version == "" {
		b.Version = "dev"
	}
	return b
}

func (b *Build) read(info *debug.BuildInfo) {
	if v := info.Main.Version; b.Version == "" && v != "(devel)" {
		b.Version = v
	}
	dirty := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			dirty = s.Value == "true"
		}
	}
	if dirty {
		b.Revision += "+dirty"
	}
	for _, m := range info.Deps {
		if m.Path == protosModule {
			b.Protos = m.Version
		}
	}
}
