//! Is the model of etcd true? The same random sequences are played to real etcd processes on loopback and to the model;
//! answers and states must agree. The model also says what a step will lead to, and the real thing has to get there.
//!
//! `ETCD_BINARY` names the program; otherwise it is taken from the lab's cache of tools. `CONFORMANCE_SEEDS=7,8,9` and
//! `CONFORMANCE_STEPS=40` choose other and longer sequences.
#![cfg(feature = "conformance")]

mod conformance;

use anyhow::Result;
use conformance::Pair;

/// Chosen so that together they add, promote, remove, wipe, kill leaders and lose quorum.
const SEEDS: [u64; 3] = [1, 2, 3];
const STEPS: u32 = 14;

async fn play(seeds: impl IntoIterator<Item = u64>, steps: u32) -> Result<()> {
    for seed in seeds {
        let mut pair = Pair::new(seed)?;
        if let Err(error) = pair.play(steps).await {
            return Err(error.context(pair.history()));
        }
        println!("{}", pair.history());
    }
    Ok(())
}

#[tokio::test]
async fn random_sequences_have_the_same_answers_and_states() {
    let list = |text: String| text.split(',').filter_map(|seed| seed.trim().parse().ok()).collect();
    let seeds: Vec<u64> = std::env::var("CONFORMANCE_SEEDS").map_or_else(|_| SEEDS.to_vec(), list);
    let steps = std::env::var("CONFORMANCE_STEPS").ok().and_then(|text| text.parse().ok()).unwrap_or(STEPS);
    play(seeds, steps).await.unwrap();
}

#[tokio::test]
async fn a_last_voter_that_is_killed_serves_only_if_the_others_removal_is_written_down() {
    for persist in [false, true] {
        let mut pair = Pair::new(0).unwrap();
        if let Err(error) = pair.last_voter(persist).await {
            panic!("{:?}", error.context(pair.history()));
        }
        println!("{}", pair.history());
    }
}

/// What random steps reach too seldom.
#[tokio::test]
async fn the_known_traps_have_the_same_answers_and_states() {
    let mut pair = Pair::new(0).unwrap();
    if let Err(error) = pair.traps().await {
        panic!("{:?}", error.context(pair.history()));
    }
    println!("{}", pair.history());
}
