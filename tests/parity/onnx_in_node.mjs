// Runs exported folders in Node and prints what came out as JSON:  node onnx_in_node.mjs MODULES JOB.json
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [modules, jobFile] = process.argv.slice(2);
const require = createRequire(join(modules, 'package.json'));
const load = (name) => import(pathToFileURL(require.resolve(name)));
const job = JSON.parse(readFileSync(jobFile));

const jobs = {
  // Transformers.js: the vectors of texts, and those inside the graph.
  async embed() {
    const { pipeline, env } = await load('@huggingface/transformers');
    env.allowRemoteModels = false;
    env.localModelPath = job.root;
    const extract = await pipeline('feature-extraction', job.folder, { dtype: job.dtype });
    const vectors = await extract(job.texts, { pooling: 'mean', normalize: true });
    const inside = await extract.model(extract.tokenizer(job.texts, { padding: true }));
    return { vectors: vectors.tolist(), inside: inside.sentence_embedding.tolist() };
  },
  // Transformers.js: greedy generation with the keys and values of earlier tokens.
  async generate() {
    const { AutoModelForCausalLM, Tensor, env } = await load('@huggingface/transformers');
    env.allowRemoteModels = false;
    env.localModelPath = job.root;
    const model = await AutoModelForCausalLM.from_pretrained(job.folder, { dtype: 'fp32' });
    const whole = (values) => new Tensor('int64', BigInt64Array.from(values.map(BigInt)), [1, values.length]);
    const out = await model.generate({
      input_ids: whole(job.ids), attention_mask: whole(job.ids.map(() => 1)),
      max_new_tokens: job.count, do_sample: false, eos_token_id: -1,
    });
    return Array.from(out.data).map(Number);
  },
  // The runtime of browsers: SGD by the graphs of gradients and of a step.
  async train() {
    const ort = await load('onnxruntime-web');
    ort.env.wasm.numThreads = 1;
    const gradients = await ort.InferenceSession.create(readFileSync(join(job.root, 'onnx/gradients.onnx')));
    const step = await ort.InferenceSession.create(readFileSync(join(job.root, 'onnx/sgd.onnx')));
    const batch = {};
    for (const [name, { dims, values }] of Object.entries(job.batch)) {
      batch[name] = new ort.Tensor('int64', BigInt64Array.from(values.map(BigInt)), dims);
    }
    const weights = await ort.InferenceSession.create(readFileSync(join(job.root, 'onnx/parameters.onnx')));
    let parameters = await weights.run({});
    let speeds = Object.fromEntries(Object.entries(parameters).map(([name, one]) =>
      [`speed/${name}`, new ort.Tensor('float32', new Float32Array(one.size), one.dims)]));
    const rate = new ort.Tensor('float32', [job.rate], []);
    const losses = [];
    for (let number = 1; number <= job.steps; number++) {
      const { loss, ...found } = await gradients.run({ ...batch, ...parameters });
      losses.push(Number(loss.data[0]));
      const counter = new ort.Tensor('int64', BigInt64Array.from([BigInt(number)]), []);
      const moved = await step.run({ ...parameters, ...found, ...speeds, step: counter, learning_rate: rate });
      const renew = (old) => Object.fromEntries(Object.keys(old).map((name) => [name, moved[`new.${name}`]]));
      [parameters, speeds] = [renew(parameters), renew(speeds)];
    }
    return losses;
  },
};

console.log('RESULT ' + JSON.stringify(await jobs[job.kind]()));
