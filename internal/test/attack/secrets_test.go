//go:build linux

package attack

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tls "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-relay/xds-relay/cache"
)

// planted is in a secret, and must be nowhere else.
const planted = "canary-3c9b71e0-planted"

// secrets has a secret of any name, which says for what node it is.
func secrets(node string, t cache.TypeURL, name string) *anypb.Any {
	if t != cache.Secret {
		return nil
	}
	text := planted + strings.Repeat(".", 8<<10) + node
	return packed(&tls.Secret{Name: name, Type: &tls.Secret_GenericSecret{GenericSecret: &tls.GenericSecret{
		Secret: &core.DataSource{Specifier: &core.DataSource_InlineBytes{InlineBytes: []byte(text)}}}}})
}

// asksForSecrets subscribes to a secret, refuses it, and asks for all of them.
func asksForSecrets(ctx context.Context, at *target) (string, error) {
	c, err := dial(at)
	if err != nil {
		return "", err
	}
	defer c.Close()
	refusal := &discovery.DeltaDiscoveryRequest{TypeUrl: string(cache.Secret), ResponseNonce: "1", ErrorDetail: &status.Status{Message: "no"}}
	return c.again(ctx, subscribe(cache.Secret, "planted"), refusal, subscribe(cache.Secret, "*"))
}

// showsNoSecret looks for the secret wherever the relay shows or writes something.
func showsNoSecret(w *world) error {
	got, err := w.asks("owner", w.as("owner"), subscribe(cache.Secret, "planted"))
	if err != nil || len(got.GetResources()) != 1 || !bytes.Contains(got.GetResources()[0].GetResource().GetValue(), []byte(planted)) {
		return fmt.Errorf("its owner is not sent the secret: %v, %v", got, err)
	}
	var wrong []error
	look := func(where, text string) {
		for _, form := range []string{planted, base64.StdEncoding.EncodeToString([]byte(planted))[:24], fmt.Sprintf("%x", planted)} {
			if strings.Contains(text, form) {
				wrong = append(wrong, fmt.Errorf("%s shows the secret", where))
			}
		}
	}
	for _, page := range pages {
		_, text, err := w.relay.Get(page)
		wrong = append(wrong, err)
		look(page, text)
	}
	w.relay.Stop() // it writes the snapshot
	for _, line := range w.relay.Output.Lines() {
		look("the log", line)
	}
	files := 0
	err = filepath.WalkDir(w.path("state"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		look(path, string(text))
		files++
		return err
	})
	if err == nil && files == 0 {
		err = errors.New("there is no snapshot")
	}
	return errors.Join(append(wrong, err)...)
}
