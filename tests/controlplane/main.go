// The control plane that Knell's integration tests run against: the programs of Kubernetes and of etcd in one binary,
// because they share much of their code. The first argument says which one it is to be.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/etcdctl/v3/ctlv3"
	"go.etcd.io/etcd/etcdutl/v3/etcdutl"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

var programs = map[string]func(){
	"etcd":                    func() { etcdmain.Main(os.Args) },
	"etcdctl":                 ctlv3.MustStart,
	"etcdutl":                 runEtcdutl,
	"kube-apiserver":          func() { runKubernetes(apiserver.NewAPIServerCommand) },
	"kube-controller-manager": func() { runKubernetes(controllermanager.NewControllerManagerCommand) },
	"kubectl":                 func() { runKubernetes(kubectl.NewDefaultKubectlCommand) },
}

func main() {
	if len(os.Args) > 1 {
		if run, known := programs[os.Args[1]]; known {
			// Each program reads os.Args itself (kubectl looks for its plugins there), so it must see its own.
			os.Args = os.Args[1:]
			run()
			return
		}
	}
	fmt.Fprintln(os.Stderr, "usage: kube etcd|etcdctl|etcdutl|kube-apiserver|kube-controller-manager|kubectl [arguments]")
	os.Exit(2)
}

func runKubernetes(command func() *cobra.Command) {
	// The package ctlv3 turns this on for the whole process; the released kubectl does not take `kubectl delet`.
	cobra.EnablePrefixMatching = false
	os.Exit(cli.Run(command()))
}

// The root command of etcdutl is in its main package, which cannot be imported: this is the same, without the commands
// for shell completion and for the migration of old data.
func runEtcdutl() {
	root := &cobra.Command{Use: "etcdutl", Short: "An administrative command line tool for etcd3."}
	root.PersistentFlags().StringVarP(&etcdutl.OutputFormat, "write-out", "w", "simple",
		"set the output format (fields, json, protobuf, simple, table)")
	root.AddCommand(
		etcdutl.NewDefragCommand(),
		etcdutl.NewHashKVCommand(),
		etcdutl.NewSnapshotCommand(),
		etcdutl.NewVersionCommand(),
	)
	if root.Execute() != nil {
		os.Exit(1)
	}
}
