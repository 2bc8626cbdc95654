package main

import (
	"archive/tar"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // the formats
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// name is how the files for a platform begin.
func (r *release) name(p platform) string {
	return fmt.Sprintf("xds-relay_%s_%s", strings.TrimPrefix(r.version, "v"), p)
}

// pack makes archives, packages and images of what is on the stage.
func (r *release) pack() error {
	for _, p := range platforms {
		if err := r.archive(p); err != nil {
			return fmt.Errorf("the archive for %s: %w", p, err)
		}
		if p.os != "linux" {
			continue
		}
		for _, format := range []string{"deb", "rpm"} {
			if err := r.packaged(p, format); err != nil {
				return fmt.Errorf("the %s for %s: %w", format, p, err)
			}
		}
		if err := r.image(p); err != nil {
			return fmt.Errorf("the image for %s: %w", p, err)
		}
	}
	return nil
}

// file is one of an archive or of a layer of an image.
type file struct {
	name  string
	from  string // a path, in the checkout unless it is absolute
	data  []byte // if from is empty
	mode  int64
	owner int
}

// archive makes a .tar.gz with the binary and what belongs to it.
func (r *release) archive(p platform) error {
	dir := r.name(p) + "/"
	zipped, err := gzipped(func(w io.Writer) error {
		return r.tar(w, []file{
			{name: dir + "xds-relay", from: r.binary(p), mode: 0o755},
			{name: dir + "xds-relay.1", from: filepath.Join(r.stage, "xds-relay.1"), mode: 0o644},
			{name: dir + "completion/bash", from: filepath.Join(r.stage, "completion/bash"), mode: 0o644},
			{name: dir + "completion/zsh", from: filepath.Join(r.stage, "completion/zsh"), mode: 0o644},
			{name: dir + "completion/fish", from: filepath.Join(r.stage, "completion/fish"), mode: 0o644},
			{name: dir + "xds-relay.service", from: "deploy/package/xds-relay.service", mode: 0o644},
			{name: dir + "relay.yaml", from: "deploy/package/relay.yaml", mode: 0o644},
			{name: dir + "README.md", from: "README.md", mode: 0o644},
			{name: dir + "CHANGELOG.md", from: "CHANGELOG.md", mode: 0o644},
			{name: dir + "LICENSE", from: "LICENSE", mode: 0o644},
			{name: dir + "NOTICE", from: "NOTICE", mode: 0o644},
			{name: dir + "THIRD_PARTY_LICENSES", from: filepath.Join(r.stage, "THIRD_PARTY_LICENSES"), mode: 0o644},
		})
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, r.name(p)+".tar.gz"), zipped, 0o644)
}

// tar writes files in their order. A name that ends in a slash is a directory.
func (r *release) tar(w io.Writer, files []file) error {
	t := tar.NewWriter(w)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: f.mode, Uid: f.owner, Gid: f.owner, ModTime: r.date, Format: tar.FormatUSTAR, Typeflag: tar.TypeReg}
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if f.from != "" {
			path := f.from
			if !filepath.IsAbs(path) {
				path = filepath.Join(r.root, path)
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			f.data = data
		}
		h.Size = int64(len(f.data))
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(f.data); err != nil {
			return err
		}
	}
	return t.Close()
}

// packaged makes the package of a format, from deploy/package/nfpm.yaml.
func (r *release) packaged(p platform, format string) error {
	// Paths of the scripts and contents are relative to the checkout.
	back, err := os.Getwd()
	if err != nil {
		return err
	}
	if err := os.Chdir(r.root); err != nil {
		return err
	}
	defer func() { _ = os.Chdir(back) }() // it was there
	config, err := nfpm.ParseFileWithEnvMapping("deploy/package/nfpm.yaml", func(name string) string {
		return map[string]string{"ARCH": p.arch, "VERSION": r.version, "STAGE": r.stage, "BINARY": r.binary(p)}[name]
	})
	if err != nil {
		return err
	}
	info, err := config.Get(format)
	if err != nil {
		return err
	}
	info.MTime = r.date
	for _, c := range info.Contents {
		if c.FileInfo != nil {
			c.FileInfo.MTime = r.date
		}
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(r.out, r.name(p)+"."+format))
	if err != nil {
		return err
	}
	if err := packager.Package(nfpm.WithDefaults(info), f); err != nil {
		_ = f.Close() // there is an error already
		return err
	}
	return f.Close()
}

// sumsFile has the checksums of all other files, for sha256sum -c.
const sumsFile = "SHA256SUMS"

func checksums(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, e := range entries {
		if e.Name() == sumsFile {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), e.Name())
	}
	return os.WriteFile(filepath.Join(dir, sumsFile), []byte(sums.String()), 0o644)
}
