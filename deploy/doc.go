// Package deploy holds what it takes to run the relay elsewhere than on a
// developer's machine: the container image, packages with a systemd unit, alerts, a dashboard, and
// ready-made examples, each checked by a test that loads it as its reader would; alerts and dashboard by
// internal/admin and internal/test/e2e/alerts, packages by internal/release, which makes them.
//
// It never holds code of the product; the quickstart's control plane is a sample, and
// internal/test/e2e/envoy runs the examples. Limitation: there is no Helm chart; docs/operations.md has
// short manifests to copy.
package deploy
