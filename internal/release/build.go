package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"github.com/CycloneDX/cyclonedx-gomod/pkg/generate/bin"
	"github.com/rs/zerolog"
)

// binary is the relay's for a platform.
func (r *release) binary(p platform) string { return filepath.Join(r.stage, p.String(), "xds-relay") }

// build makes the binaries, and what they and the compiler can say of themselves.
func (r *release) build() error {
	host := platform{runtime.GOOS, runtime.GOARCH}
	for _, p := range platforms {
		if err := r.compile(p); err != nil {
			return err
		}
	}
	if !slices.Contains(platforms, host) {
		if err := r.compile(host); err != nil {
			return err
		}
	}
	if err := r.describe(r.binary(host)); err != nil {
		return err
	}
	return r.licenses()
}

func (r *release) compile(p platform) error {
	fmt.Println("building for", p)
	env := append(slices.Clone(r.env), "GOOS="+p.os, "GOARCH="+p.arch)
	_, err := outputWith(env, r.root, "go", "build", "-trimpath", "-ldflags", "-s -w -X main.version="+r.version, "-o", r.binary(p), "./cmd/xds-relay")
	return err
}

// describe has the relay print its manual page and completion scripts, once it knows what it is.
func (r *release) describe(relay string) error {
	commit, err := output(r.root, "git", "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	said, err := output(r.stage, relay, "version")
	if err != nil {
		return err
	}
	if !bytes.Contains(said, []byte(r.version+"\n")) || !bytes.Contains(said, bytes.TrimSpace(commit)) || bytes.Contains(said, []byte("dirty")) {
		return fmt.Errorf("the relay does not say that it is %s of commit %s, but\n%s", r.version, commit, said)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script, err := output(r.stage, relay, "completion", shell)
		if err != nil {
			return err
		}
		if err := r.put("completion/"+shell, script); err != nil {
			return err
		}
	}
	page, err := output(r.stage, relay, "man")
	if err != nil {
		return err
	}
	zipped, err := gzipped(func(w io.Writer) error { _, err := w.Write(page); return err })
	if err != nil {
		return err
	}
	return errors.Join(r.put("xds-relay.1", page), r.put("xds-relay.1.gz", zipped))
}

// put writes a file into the stage.
func (r *release) put(name string, data []byte) error {
	path := filepath.Join(r.stage, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

// gzipped compresses what write writes, without a time or a name.
func gzipped(write func(io.Writer) error) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if err := write(z); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// licenseFile are the names of files whose text has to go with a binary.
var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice)([.-].*)?$`)

// licenses puts together the licences of all that is in the binaries.
func (r *release) licenses() error {
	goroot, err := outputWith(r.env, r.root, "go", "env", "GOROOT")
	if err != nil {
		return err
	}
	dirs := map[string]string{"Go": string(bytes.TrimSpace(goroot))}
	for _, p := range platforms {
		env := append(slices.Clone(r.env), "GOOS="+p.os, "GOARCH="+p.arch)
		list, err := outputWith(env, r.root, "go", "list", "-deps", "-json=Module", "./cmd/xds-relay")
		if err != nil {
			return err
		}
		for d := json.NewDecoder(bytes.NewReader(list)); d.More(); {
			var pkg struct {
				Module *struct {
					Path, Version, Dir string
					Main               bool
				}
			}
			if err := d.Decode(&pkg); err != nil {
				return err
			}
			if m := pkg.Module; m != nil && !m.Main {
				dirs[m.Path+" "+m.Version] = m.Dir
			}
		}
	}
	var all bytes.Buffer
	fmt.Fprintln(&all, "The binary xds-relay contains the following modules, under these licences.")
	for _, name := range slices.Sorted(maps.Keys(dirs)) {
		fmt.Fprintf(&all, "\n==== %s\n", name)
		n := all.Len()
		entries, err := os.ReadDir(dirs[name])
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.IsDir() || !licenseFile.MatchString(e.Name()) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dirs[name], e.Name()))
			if err != nil {
				return err
			}
			fmt.Fprintf(&all, "\n%s\n", bytes.TrimSpace(text))
		}
		if all.Len() == n {
			return fmt.Errorf("%s has no file with its licence in %s; see whether the relay may contain it", name, dirs[name])
		}
	}
	return r.put("THIRD_PARTY_LICENSES", all.Bytes())
}

// sboms says of each binary what is in it.
func (r *release) sboms() error {
	for _, p := range platforms {
		if err := r.sbom(r.binary(p), filepath.Join(r.out, r.name(p)+".cdx.json")); err != nil {
			return fmt.Errorf("the SBOM for %s: %w", p, err)
		}
	}
	return nil
}

// sbom is in CycloneDX's form. The time is that of the commit; the command cyclonedx-gomod would write its own, and a
// hash of itself.
func (r *release) sbom(binary, to string) error {
	g, err := bin.NewGenerator(binary, bin.WithIncludeStdlib(true), bin.WithVersionOverride(r.version), bin.WithLogger(zerolog.Nop()))
	if err != nil {
		return err
	}
	bom, err := g.Generate()
	if err != nil {
		return err
	}
	bom.Metadata.Timestamp = r.date.Format(time.RFC3339)
	var text bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&text, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return err
	}
	return os.WriteFile(to, text.Bytes(), 0o644)
}
