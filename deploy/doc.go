// Package deploy holds what it takes to run the relay elsewhere than on a
// developer's machine: the container image, alerts, a dashboard, and ready-made examples, each
// checked by a test that loads it as its reader would; alerts and dashboard by internal/admin and
// internal/test/e2e/alerts.
//
// It never holds code of the product; the quickstart's control plane is a sample, and
// internal/test/e2e/envoy runs the examples. Limitations: there is no Helm chart and no package;
// docs/operations.md has short manifests and a systemd unit to copy.
package deploy
