//! Is the model true? The same random requests go to the simulated API server and to a real kube-apiserver, through
//! the same client; codes, reasons, objects, watches and what the garbage collector leaves must agree but for
//! identities, versions and times. A difference is a bug of the model.
//!
//! Needs the programs that the lab builds, so it runs only when asked for:
//! `cargo test -p simulation --features conformance --test apiserver_conformance`. `SEEDS=0..100` chooses the seeds.

mod bodies;
mod collector;
mod control_plane;
mod script;
mod side;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::future::try_join_all;
use kube::Client;
use serde_json::{Value, json};
use simulation::apiserver::ApiServer;
use simulation::apiserver::http::Shared;
use tokio::time::sleep;

use bodies::KINDS;
use control_plane::ControlPlane;
use script::{Op, script};
use side::{Side, comparable};

const LENGTH: usize = 150;

#[tokio::test]
async fn the_model_answers_as_the_real_one_does() -> Result<()> {
    let mut plane = ControlPlane::start().await?;
    let real = plane.client()?;
    install_crds(&real).await?;
    let mut differences = vec![];
    let mut requests = 0;
    for seed in seeds()? {
        let (asked, difference) = compare(&real, seed).await.with_context(|| format!("seed {seed}"))?;
        requests += asked;
        differences.extend(difference.map(|difference| format!("seed {seed}: {difference}")));
    }
    println!("{requests} requests compared");
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n\n"));

    plane.start_garbage_collector()?;
    collector::compare(&real).await
}

fn seeds() -> Result<Range<u64>> {
    let Ok(text) = std::env::var("SEEDS") else { return Ok(0..8) };
    let (from, to) = text.split_once("..").context("SEEDS is like 0..100")?;
    Ok(from.parse()?..to.parse()?)
}

/// Plays one script against both. Ends at the first difference: afterwards the two are not in the same state.
async fn compare(real: &Client, seed: u64) -> Result<(usize, Option<String>)> {
    let namespace = format!("conformance-{seed}");
    create_namespace(real, &namespace).await?;
    let shared = Shared::new(ApiServer::default(), seed);
    let model = shared.client("conformance", &namespace);
    let mut sides = [Side::new(model, namespace.clone()), Side::new(real.clone(), namespace.clone())];
    let began = versions(&sides).await?;
    let mut asked = 0;
    for (step, op) in script(seed, LENGTH).iter().enumerate() {
        let Some(difference) = play(&mut sides, op).await? else { continue };
        if difference.is_empty() {
            asked += 1;
        } else {
            return Ok((asked, Some(format!("step {step}: {op:?}\n{difference}"))));
        }
    }
    Ok((asked, compare_watches(&sides, &began).await?))
}

/// `None` if there was nothing to ask, an empty text if both agree.
async fn play(sides: &mut [Side; 2], op: &Op) -> Result<Option<String>> {
    let mut answers = vec![];
    for side in sides.iter_mut() {
        let Some(question) = op.question(side) else { return Ok(None) };
        let answer = side.ask(&question).await?;
        let moved = side.remember(op.kind, &answer.body);
        let after = side.get(side.path(op.kind, Some(&op.name), None)).await?;
        let moved_after = side.remember(op.kind, &after.body);
        let mut seen = json!({ "answer": answer.comparable(op.kind), "after": after.comparable(op.kind) });
        if !op.is_scale() && !has_foreign_finalizer(&after.body) {
            seen["moved"] = json!([moved, moved_after]);
        }
        answers.push((seen, question.body, answer.body["message"].clone()));
        if op.is_generated() && answer.code < 300 {
            let name = answer.body["metadata"]["name"].as_str().unwrap_or_default();
            let patch = json!({ "metadata": { "finalizers": null } });
            side.discard(op.kind, name, patch).await?;
        }
    }
    let [(model, sent, said), (real, _, really)] = answers.as_slice() else {
        bail!("two sides, two answers")
    };
    if model == real {
        return Ok(Some(String::new()));
    }
    let sent = sent.clone().unwrap_or_default();
    Ok(Some(format!("  sent  {sent}\n  model {model} {said}\n  real  {real} {really}")))
}

/// A finalizer that the server has added itself belongs to nobody until the next write, which therefore changes the
/// record of who manages which field, and so the version. That record is not simulated.
fn has_foreign_finalizer(object: &Value) -> bool {
    let foreign = ["kubernetes.io/pvc-protection", "orphan", "foregroundDeletion"];
    let finalizers = object["metadata"]["finalizers"].as_array();
    finalizers.into_iter().flatten().any(|f| foreign.iter().any(|foreign| f == foreign))
}

/// Where each kind's watch begins, for both sides.
async fn versions(sides: &[Side; 2]) -> Result<Vec<[String; 2]>> {
    let mut versions = vec![];
    for kind in KINDS {
        let mut pair = [String::new(), String::new()];
        for (side, version) in sides.iter().zip(&mut pair) {
            let list = side.get(side.path(kind, None, None)).await?;
            *version = list.body["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        }
        versions.push(pair);
    }
    Ok(versions)
}

/// Seconds that the real one has to tell what the model told: on a busy machine a watch may begin late.
const PATIENCE: [u32; 3] = [1, 5, 30];

/// Everything that has happened, as watches tell it, with and without a selector.
async fn compare_watches(sides: &[Side; 2], began: &[[String; 2]]) -> Result<Option<String>> {
    let [model, real] = sides;
    let watches = KINDS.iter().zip(began).flat_map(|(kind, [ours, theirs])| {
        ["", "app=a"].map(|selector| async move {
            let told = |events: Vec<Value>| -> Vec<Value> {
                let event =
                    |e: &Value| json!({ "type": e["type"], "object": comparable(*kind, &e["object"]) });
                without_echoes(events.iter().map(event).collect())
            };
            let model = told(model.watch(*kind, ours, selector, 1).await?);
            let mut tries = PATIENCE.into_iter();
            let real = loop {
                let seconds = tries.next().unwrap_or_default();
                let real = told(real.watch(*kind, theirs, selector, seconds).await?);
                if real == model || tries.len() == 0 {
                    break real;
                }
            };
            anyhow::Ok((model != real).then(|| {
                let first =
                    model.iter().zip(&real).position(|(a, b)| a != b).unwrap_or(model.len().min(real.len()));
                let shown = |events: &[Value]| events.get(first).map(Value::to_string).unwrap_or_default();
                let (model, real) = (shown(&model), shown(&real));
                format!("watch of {} {selector}, event {first}\n  model {model}\n  real  {real}", kind.plural)
            }))
        })
    });
    Ok(try_join_all(watches).await?.into_iter().flatten().next())
}

/// Drops what says the same as the event before it about the same object.
fn without_echoes(events: Vec<Value>) -> Vec<Value> {
    let mut last = BTreeMap::new();
    let mut news = |event: &Value| {
        let object = event["object"].clone();
        let before = last.insert(object["metadata"]["name"].to_string(), object.clone());
        event["type"] != "MODIFIED" || before != Some(object)
    };
    events.into_iter().filter(|event| news(event)).collect()
}

async fn install_crds(client: &Client) -> Result<()> {
    for manifest in api::crd::all()? {
        let body = serde_json::to_vec(&manifest.definition)?;
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let request = http::Request::post(path).header("content-type", "application/json").body(body)?;
        client
            .request::<Value>(request)
            .await
            .with_context(|| format!("cannot install {}", manifest.kind))?;
    }
    for kind in KINDS.iter().filter(|kind| kind.is_custom()) {
        let path = format!("/apis/{}/{}", kind.api_version(), kind.plural);
        let mut tries = 0;
        while client.request::<Value>(http::Request::get(&path).body(vec![])?).await.is_err() {
            tries += 1;
            if tries > 300 {
                bail!("{} is not served", kind.plural);
            }
            sleep(Duration::from_millis(100)).await;
        }
    }
    Ok(())
}

async fn create_namespace(client: &Client, name: &str) -> Result<()> {
    let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }).to_string();
    let request = http::Request::post("/api/v1/namespaces").header("content-type", "application/json");
    client.request::<Value>(request.body(body.into_bytes())?).await?;
    Ok(())
}
