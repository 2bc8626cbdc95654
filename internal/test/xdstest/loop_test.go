package xdstest_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-relay/xds-relay/internal/test/xdstest"
	"github.com/xds-relay/xds-relay/internal/test/xdstest/play"
)

// TestALoop: relays that have each other as control planes find out, whatever they leave out of their
// streams meanwhile, and tell their clients what to do (NODE-11, UP-21).
func TestALoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		networks := map[string]*xdstest.Network{"a": xdstest.NewNetwork(), "b": xdstest.NewNetwork()}
		clients := make(map[string]*xdstest.Client)
		for name, other := range map[string]string{"a": "b", "b": "a"} {
			relay, err := play.StartRelay([]string{"instance=" + name}, networks[other].Dial, networks[name].Listener())
			if err != nil {
				t.Fatal(err)
			}
			defer relay.Stop()
		}
		for actor, relay := range map[string]string{"c1": "a", "c2": "b"} {
			client, err := xdstest.NewClient(actor, nil, networks[relay].DialFrom)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if err := client.Say(xdstest.MustParse(actor, "sub CDS a")); err != nil {
				t.Fatal(err)
			}
			clients[actor] = client
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for actor, client := range clients {
			events, err := client.Heard()
			if err != nil || len(events) != 1 || !strings.Contains(events[0].Text, "break the loop") {
				t.Errorf("%s hears %v (%v)", actor, events, err)
			}
		}
	})
}
