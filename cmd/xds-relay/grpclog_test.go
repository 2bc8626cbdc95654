package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestRefusedClientsAreMentionedNowAndThen: whoever knocks cannot fill the log.
func TestRefusedClientsAreMentionedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		g := &grpcLog{log: slog.New(slog.NewTextHandler(&out, nil))}
		for range 1000 {
			g.Info("[core] [Server #1] grpc: Server.Serve failed to create ServerTransport: tls: bad certificate\n")
			g.Warning("[core] [Channel #1] grpc: addrConn.createTransport failed to connect")
		}
		time.Sleep(refusedEvery)
		g.Infof("failed to create ServerTransport: %s", "tls: bad certificate")

		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], `err="tls: bad certificate" more_since_last=0`) || !strings.Contains(lines[1], "more_since_last=999") {
			t.Errorf("the log is\n%s\nwant two lines, the second with 999 held back", out.String())
		}
	})
}
