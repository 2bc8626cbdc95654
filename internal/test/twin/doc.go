// Package twin plays random games against the relay, and judges what its clients see. It owns a reference
// model that knows nothing of how the relay works (model.go), a judge that reads every message between control
// plane, relay and clients (judge*.go, history.go), and a game of random operations with an honest control plane
// and honest clients (game.go, script.go, controlplane.go, player.go). Only tests use it.
//
// A game is a script: settings, and one operation a line. It is played on the pure cores (pure_test.go) and against
// a whole relay over gRPC (live_test.go). Every operation can be played at any time, so that a script that fails is
// made short by leaving lines out, and a seed stays of use when the generator changes.
//
// Half of the games have a control plane that is not plain (servers.go), or that hangs (outages.go), or two of them, of
// which the last is reachable at the end.
//
// While the game goes on, the judge looks at what clients are sent: G1, G2, G4, G5, ORDER-2 and ORDER-3. At the
// end the control plane says all that it has to say, the clients read and ACK, time passes, and every client
// must hold what the twin says: the control plane's world, filtered by the client's interest (G3).
//
// docs/testing.md lists where the judge accepts more than one outcome, and what the games do not play, each with its
// rule. Each such case is printed with its count at the end of a run (lenient.go).
//
// What it never does: it does not look into the relay, and does not judge what the relay asks for upstream, what
// lingers there, or which versions, nonces and errors clients are sent.
//
// Limitations: a client has one aggregated stream. Latency and memory are not measured here.
package twin
