package main

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// repository is what the image is called.
const repository = "ghcr.io/xds-relay/xds-relay"

// nobody is the user of the image: a number, because it has no /etc/passwd, and because Kubernetes'
// runAsNonRoot wants one.
const nobody = 65532

// image makes the image for a platform, as `docker load` and `crane push` take it. deploy/Dockerfile makes
// the same with an engine.
func (r *release) image(p platform) error {
	var layer bytes.Buffer
	err := r.tar(&layer, []file{
		{name: "etc/ssl/certs/ca-certificates.crt", data: authorities(), mode: 0o644},
		{name: "usr/share/doc/xds-relay/LICENSE", from: "LICENSE", mode: 0o644},
		{name: "usr/share/doc/xds-relay/NOTICE", from: "NOTICE", mode: 0o644},
		{name: "usr/share/doc/xds-relay/THIRD_PARTY_LICENSES", from: filepath.Join(r.stage, "THIRD_PARTY_LICENSES"), mode: 0o644},
		// A volume that is mounted here belongs to the relay, too.
		{name: "var/lib/xds-relay/", mode: 0o700, owner: nobody},
		{name: "xds-relay", from: r.binary(p), mode: 0o755},
	})
	if err != nil {
		return err
	}
	content, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil })
	if err != nil {
		return err
	}
	created := v1.Time{Time: r.date}
	image, err := mutate.Append(empty.Image, mutate.Addendum{Layer: content, History: v1.History{Created: created, CreatedBy: "make release VERSION=" + r.version}})
	if err != nil {
		return err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = p.os, p.arch, created
	config.Config = v1.Config{
		User:         fmt.Sprintf("%d:%d", nobody, nobody),
		Entrypoint:   []string{"/xds-relay"},
		Cmd:          []string{"serve", "-c", "/etc/xds-relay/relay.yaml"},
		ExposedPorts: map[string]struct{}{"18000/tcp": {}, "18001/tcp": {}, "18002/tcp": {}},
		// See deploy/Dockerfile.
		Healthcheck: &v1.HealthConfig{
			Test:     []string{"CMD", "/xds-relay", "healthcheck", "--live", "-c", "/etc/xds-relay/relay.yaml"},
			Interval: 10 * time.Second, Timeout: 5 * time.Second, StartPeriod: 5 * time.Second, Retries: 3,
		},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "xds-relay",
			"org.opencontainers.image.version":  r.version,
			"org.opencontainers.image.source":   "https://github.com/xds-relay/xds-relay",
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return err
	}
	tag, err := name.NewTag(repository + ":" + r.version)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(filepath.Join(r.out, r.name(p)+".image.tar"), tag, image)
}

// authorities are those that Mozilla trusts, of the version in go.mod, to check the certificate of a control
// plane. An authority that is trusted with a constraint is left out, since a file cannot say it.
func authorities() []byte {
	var all bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&all, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes everything
		}
	}
	return all.Bytes()
}
