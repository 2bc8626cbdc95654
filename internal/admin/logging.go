package admin

import (
	"net/http"

	"github.com/xds-relay/xds-relay/internal/logging"
)

// logging shows the least severity that is logged and, asked with POST, changes it until the
// process ends.
func (h *handler) logging(w http.ResponseWriter, req *http.Request) {
	if req.Method == http.MethodPost {
		level, err := logging.ParseLevel(req.URL.Query().Get("level"))
		if err != nil {
			badRequest(w, err)
			return
		}
		was := h.level.Level()
		h.level.Set(min(was, level)) // so that the next line is written, whatever level it goes to
		h.log.Warn("an operator changes the log level", "from", logging.Name(was), "to", logging.Name(level))
		h.level.Set(level)
	}
	reply(w, struct {
		Level string `json:"level"`
	}{logging.Name(h.level.Level())})
}
