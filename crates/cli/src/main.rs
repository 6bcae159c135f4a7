fn main() -> std::process::ExitCode {
    loadline_cli::main()
}
