//! The program: told by its arguments, ordered by its run folder, ended by SIGTERM.

use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;
use mesh_controller::config::Config;
use mesh_controller::log::Log;
use mesh_controller::run_folder::RunFolder;
use mesh_controller::{roles, start};
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    let log = Log::default();
    let config = match Config::try_parse() {
        Ok(config) => config,
        Err(error) => {
            let _ = error.print();
            let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            return if asked { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
    };
    // One thread: what it does is wait for others.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(run(&config, &log)),
        Err(error) => Err(error.into()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log.line(&format!("mesh-controller: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(config: &Config, log: &Log) -> Result<(), anyhow::Error> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = async {
        tokio::select! {
            // cancel safe: a signal's stream
            _ = terminate.recv() => {}
            // cancel safe: a signal's stream
            _ = interrupt.recv() => {}
        }
    };
    let mut stop = std::pin::pin!(stop);
    let folder = RunFolder::new(&config.run_dir);
    let seat = tokio::select! {
        biased;
        // cancel safe: pinned outside
        () = &mut stop => return Ok(()),
        // cancel safe: nothing was answered yet
        seat = start::stand_by(config, &folder, log) => seat?,
    };
    roles::follow(seat, &folder, stop).await;
    log.line("ended: the seat was left, the lock given back");
    Ok(())
}
