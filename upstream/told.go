package upstream

import (
	"context"
	"log/slog"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/logging"
	"github.com/xds-relay/xds-relay/upstream/session"
)

// What is asked of a control plane, and what it answers, for debugging. Bodies are not shown,
// nor the node, nor versions of secrets: whoever can guess at a weak one could check the
// guess.

// debugs reports whether any of it is told. Nothing is made for the log before that is known.
func debugs(log *slog.Logger) bool { return log.Enabled(context.Background(), slog.LevelDebug) }

func tellRequest(log *slog.Logger, req proto.Message) {
	switch r := req.(type) {
	case *discovery.DeltaDiscoveryRequest:
		log.Debug("upstream request", "type", cache.TypeURL(r.GetTypeUrl()), "subscribe", len(r.GetResourceNamesSubscribe()), "first", logging.First(r.GetResourceNamesSubscribe()),
			"unsubscribe", len(r.GetResourceNamesUnsubscribe()), "versions", len(r.GetInitialResourceVersions()),
			"nonce", r.GetResponseNonce(), "nack", r.GetErrorDetail().GetMessage())
	case *discovery.DiscoveryRequest:
		log.Debug("upstream request", "type", cache.TypeURL(r.GetTypeUrl()), "names", len(r.GetResourceNames()), "first", logging.First(r.GetResourceNames()),
			"version", logging.Version(cache.TypeURL(r.GetTypeUrl()), r.GetVersionInfo()), "nonce", r.GetResponseNonce(), "nack", r.GetErrorDetail().GetMessage())
	}
}

func tellResponse(log *slog.Logger, d *session.Response, bytes int) {
	var names []string
	for _, r := range d.Update.Set[:min(len(d.Update.Set), logging.MaxNames)] {
		names = append(names, r.Name)
	}
	log.Debug("upstream response", "type", d.TypeURL, "nonce", d.Nonce, "version", logging.Version(d.TypeURL, d.Version),
		"resources", len(d.Update.Set)+len(d.Bodyless), "first", names, "removed", len(d.Update.Removed), "errors", len(d.Update.Errors), "bytes", bytes)
}
