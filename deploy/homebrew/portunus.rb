# Formula of Portunus for Homebrew on Linux. `cargo xtask dist` fills in version, address and checksums.
class Portunus < Formula
  desc "Model gateway: one key, four request formats, every model, exact money"
  homepage "@HOMEPAGE@"
  version "@VERSION@"
  license "Apache-2.0"
  depends_on :linux

  on_intel do
    url "@BASE_URL@/portunus-@VERSION@-linux-x86_64.tar.gz"
    sha256 "@SHA256_x86_64@"
  end

  on_arm do
    url "@BASE_URL@/portunus-@VERSION@-linux-aarch64.tar.gz"
    sha256 "@SHA256_aarch64@"
  end

  def install
    bin.install "usr/bin/portunus"
    man1.install Dir["usr/share/man/man1/*"]
    bash_completion.install "usr/share/bash-completion/completions/portunus"
    zsh_completion.install "usr/share/zsh/vendor-completions/_portunus"
    fish_completion.install "usr/share/fish/vendor_completions.d/portunus.fish"
    (etc/"portunus").install "etc/portunus/portunus.toml"
  end

  service do
    run [opt_bin/"portunus", "serve", "--config", etc/"portunus/portunus.toml", "--data", var/"portunus"]
    keep_alive true
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/portunus --version")
  end
end
