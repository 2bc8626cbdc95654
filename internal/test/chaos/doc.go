// Package chaos breaks real processes: the relay's own binary, a control plane that
// is a process of its own, and the network between them, with a thousand clients in
// the test's process that judge everything they hear. It owns the targets of the
// reliability table that need real processes, and the figures in
// bench/results/chaos-*.json.
//
// A plain go test runs each target in a short form that asserts what must hold on
// any machine: no final state lost, nothing removed that exists, nobody sent away.
// Times and sizes are measured there and not judged. CHAOS=long (make chaos) runs
// the form that the target's text describes, and judges its limits, too.
//
// It never sleeps to get something right, and never leaves a process behind:
// whatever it starts dies with it. Limitations: it runs on Linux only; everything
// shares one machine, so that the clients and the control plane take their share of
// what is measured; and clients read no more of a response than names and versions.
package chaos
