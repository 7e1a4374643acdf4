import { CODE_URL_SHAPE, codeUrl, isSha256, parseCodeUrl } from './code-package.ts';
import { LAMBDA_RUNTIME } from './lambda-name.ts';
import { LIMITS } from './limits.ts';
import { type Problem, quote } from './problem.ts';

/** The directory that shows the files of layers, inside. */
export const LAMBDA_LAYERS_ROOT = '/opt';
export const LAMBDA_LAYERS_DOC =
  'With runtime `lambda`: code packages (`code://<sha256>`) whose files are below `/opt`. Others store it.';

/** The fields of a registration that decide about its layers. */
export interface LayeredFunction {
  readonly kind: string;
  readonly runtime: string;
  readonly layers: readonly unknown[] | null;
}

/**
 * Returns the SHA-256 of the layers of a function in their order. Returns none for other runtimes, which only
 * store the field.
 */
export function lambdaLayersOf({ kind, runtime, layers }: LayeredFunction): readonly string[] {
  if (kind !== 'faas' || runtime !== LAMBDA_RUNTIME) return [];
  return (layers ?? []).map(shaOf).filter(sha256 => sha256 !== null);
}

/** Notes why a function cannot have its layers. */
export function checkLambdaLayers({ kind, runtime, layers }: LayeredFunction, problem: Problem): void {
  if (runtime !== LAMBDA_RUNTIME || layers === null || layers.length === 0) return;
  if (kind === 'agent') problem('layers', `of runtime ${LAMBDA_RUNTIME} need kind faas, got kind agent`);
  if (kind !== 'faas') return;
  const most = LIMITS.lambdaLayers;
  if (layers.length > most) problem('layers', `must have at most ${most} items, got ${layers.length}`);
  const wrong = layers.findIndex(layer => shaOf(layer) === null);
  if (wrong !== -1) problem(`layers[${wrong}]`, `must be ${CODE_URL_SHAPE}, got ${quote(layers[wrong])}`);
}

function shaOf(layer: unknown): string | null {
  return typeof layer === 'string' ? parseCodeUrl(layer) : null;
}

/** The only version of a layer: other content is another layer. */
export const LAMBDA_LAYER_VERSION = 1;
const ARN = /^arn:[a-z0-9-]+:lambda:[a-z0-9-]*:[A-Za-z0-9_-]*:layer:([^:]+):1$/;

/** Returns the ARN of a layer, without its version. The region and the account are placeholders. */
export function lambdaLayerArn(sha256: string): string {
  return `arn:aws:lambda:local:000000000000:layer:${sha256}`;
}

export function lambdaLayerVersionArn(sha256: string): string {
  return `${lambdaLayerArn(sha256)}:${LAMBDA_LAYER_VERSION}`;
}

/** Returns the code package that the ARN of a layer's version names, or null. */
export function readLambdaLayer(arn: string): string | null {
  const sha256 = ARN.exec(arn)?.[1] ?? '';
  return isSha256(sha256) ? codeUrl(sha256) : null;
}
