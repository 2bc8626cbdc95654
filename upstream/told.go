package upstream

import (
	"context"
	"log/slog"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xds-relay/xds-relay/internal/logging"
	"github.com/xds-relay/xds-relay/upstream/session"
)

// What is asked of a control plane, and what it answers, for debugging. Bodies are not shown,
// nor the node, nor versions of secrets: whoever can guess at a weak one could check the
// guess.

// debugs reports whether any of it is told. Nothing is made for the log before that is known.
func debugs(log *slog.Logger) bool { return log.Enabled(context.Background(), slog.LevelDebug) }

func tellRequest(log *slog.Logger, req proto.Message) {
	rejects := req.(interface{ GetErrorDetail() *statuspb.Status })
	log.Debug("upstream request", logging.Request(req, rejects.GetErrorDetail().GetMessage())...)
}

func tellResponse(log *slog.Logger, d *session.Response, bytes int) {
	var names []string
	for _, r := range d.Update.Set[:min(len(d.Update.Set), logging.MaxNames)] {
		names = append(names, r.Name)
	}
	log.Debug("upstream response", "type", d.TypeURL, "nonce", d.Nonce, "version", logging.Version(d.TypeURL, d.Version),
		"resources", len(d.Update.Set)+len(d.Bodyless), "first", names, "removed", len(d.Update.Removed), "errors", len(d.Update.Errors), "bytes", bytes)
}
