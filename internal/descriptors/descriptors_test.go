package descriptors

import "testing"

// TestShares: what clients, HTTP and the control plane may have together with the relay's own files is never
// more than the limit, unless that is too small for all.
func TestShares(t *testing.T) {
	const upstream = 64
	for _, limit := range []int{128, 256, 1024, 4096, 20_000, 65_536, 1 << 20} {
		clients, http := ForClients(limit, upstream), ForHTTP(limit)
		if clients < limit/4 || http < 8 {
			t.Errorf("of %d: %d for clients, %d for each HTTP listener", limit, clients, http)
		}
		if sum := clients + listeners*http + upstream + own; sum > limit && clients > limit/4 {
			t.Errorf("of %d: %d are given away", limit, sum)
		}
		if Kept(limit) < 32 {
			t.Errorf("of %d: %d are kept", limit, Kept(limit))
		}
	}
}

// TestNoLimit: where no limit is known, clients have no bound, and HTTP has one.
func TestNoLimit(t *testing.T) {
	if c, h := ForClients(0, 64), ForHTTP(0); c > 0 || h != 1024 {
		t.Errorf("%d for clients, %d for each HTTP listener", c, h)
	}
}
