import { variables } from '../../core/environment.ts';
import { FUNCTION_FIELDS } from '../../core/function.ts';
import { failAtFirst, isJsonObject, type JsonObject, readBody } from '../../core/json.ts';
import { boolean, type Kind, kindOf, list, oneOf, text, wrongAt } from '../../core/kind.ts';
import { type Fields, kept, type ObjectKind, object, optional, required } from '../../core/shape.ts';
import { readCodeBody } from './code-body.ts';

/** Settings of a function, as CreateFunction and UpdateFunctionConfiguration have them. */
export interface FunctionSettings {
  /** `''`: not sent. */
  readonly Runtime: string;
  readonly Handler: string;
  /** MB. */
  readonly MemorySize: number;
  /** Seconds. */
  readonly Timeout: number;
  readonly Description: string;
  readonly Environment: { readonly Variables: Readonly<Record<string, string>> };
  /** ARNs of layers. */
  readonly Layers: readonly string[];
}

/** The place of the code. Empty texts: not sent. */
export interface CodeRequest {
  /** The bytes of a zip. null: not sent. */
  readonly ZipFile: Buffer | null;
  readonly S3Bucket: string;
  readonly ImageUri: string;
}

export interface CreateRequest extends FunctionSettings {
  readonly FunctionName: string;
  readonly Code: CodeRequest;
  readonly Publish: boolean;
  readonly PackageType: string;
  readonly Tags: Readonly<Record<string, string>> | null;
}

export interface ConfigurationRequest extends Partial<FunctionSettings> {
  /** `''`: any revision. */
  readonly RevisionId: string;
}

export interface CodeUpdateRequest extends CodeRequest {
  readonly Publish: boolean;
  readonly DryRun: boolean;
  /** `''`: any revision. */
  readonly RevisionId: string;
}

/** The body of PublishLayerVersion. The answer repeats every field except the content. */
export interface LayerRequest {
  readonly Content: CodeRequest;
  readonly Description: string;
  readonly LicenseInfo: string;
  readonly CompatibleRuntimes: readonly string[];
  readonly CompatibleArchitectures: readonly string[];
}

/** The body of PublishVersion. Empty texts: not sent. */
export interface VersionRequest {
  readonly Description: string;
  readonly RevisionId: string;
  readonly CodeSha256: string;
}

const shortText = text({ maxChars: 1024 });
/** Items of a list in a request. */
const MAX_ITEMS = 100;
const RUNTIME = /^(python3\.\d{1,2}|nodejs\d{1,2}\.x|provided(\.al2|\.al2023)?|lambda)$/;
const RUNTIME_SHAPE =
  'python3.*, nodejs*.x or provided.al2023, because code of other languages needs a bootstrap and provided.al2023';

const SETTINGS: Fields<FunctionSettings> = {
  Runtime: optional(text({ pattern: RUNTIME, shape: RUNTIME_SHAPE }), ''),
  Handler: optional(FUNCTION_FIELDS.handler.kind, ''),
  MemorySize: optional(FUNCTION_FIELDS.memory.kind, 128),
  Timeout: optional(FUNCTION_FIELDS.timeout.kind, 3),
  Description: optional(FUNCTION_FIELDS.description.kind, ''),
  Environment: optional(object({ Variables: optional(variables(text()), {}) }), { Variables: {} }),
  Layers: optional<readonly string[]>(list(shortText, MAX_ITEMS), []),
};

const CODE_FIELDS: Fields<CodeRequest> = {
  ZipFile: optional<Buffer | null>(base64(), null),
  S3Bucket: optional(shortText, ''),
  ImageUri: optional(shortText, ''),
};

const CREATE = settable(
  object<CreateRequest>({
    FunctionName: required(text({ required: true })),
    ...SETTINGS,
    Code: required(object(CODE_FIELDS)),
    Publish: optional(boolean, false),
    PackageType: optional(oneOf(['', 'Zip', 'Image']), ''),
    Tags: optional<CreateRequest['Tags']>(FUNCTION_FIELDS.tags.kind as Kind<CreateRequest['Tags']>, null),
  }),
);

const CONFIGURATION = settable(
  object<ConfigurationRequest>({
    ...kept(SETTINGS),
    RevisionId: optional(shortText, ''),
  } as Fields<ConfigurationRequest>),
);

const CODE_UPDATE = object<CodeUpdateRequest>({
  ...CODE_FIELDS,
  Publish: optional(boolean, false),
  DryRun: optional(boolean, false),
  RevisionId: optional(shortText, ''),
});

const LAYER = object<LayerRequest>({
  Content: required(object(CODE_FIELDS)),
  Description: optional(shortText, ''),
  LicenseInfo: optional(shortText, ''),
  CompatibleRuntimes: optional<readonly string[]>(list(shortText, MAX_ITEMS), []),
  CompatibleArchitectures: optional<readonly string[]>(list(shortText, MAX_ITEMS), []),
});

const VERSION = object<VersionRequest>({
  Description: optional(FUNCTION_FIELDS.description.kind, ''),
  RevisionId: optional(shortText, ''),
  CodeSha256: optional(shortText, ''),
});

export async function readCreateRequest(body: unknown): Promise<CreateRequest> {
  return readSent(CREATE, hasBody(body) ? await readCodeBody(body) : {});
}

export function readConfigurationRequest(body: unknown): ConfigurationRequest {
  return readRequest(CONFIGURATION, body);
}

export async function readCodeUpdate(body: unknown): Promise<CodeUpdateRequest> {
  return readSent(CODE_UPDATE, hasBody(body) ? await readCodeBody(body) : {});
}

export async function readLayerRequest(body: unknown): Promise<LayerRequest> {
  return readSent(LAYER, hasBody(body) ? await readCodeBody(body) : {});
}

export function readVersionRequest(body: unknown): VersionRequest {
  return readRequest(VERSION, body);
}

function readRequest<T>(kind: Kind<T>, body: unknown): T {
  return readSent(kind, hasBody(body) ? readBody(body) : {});
}

/** Returns false if there is no body, which clients leave out if they send no field. */
function hasBody(body: unknown): body is Buffer {
  return Buffer.isBuffer(body) && body.length > 0;
}

/** Reads the fields of a body. Fails with the first problem. */
function readSent<T>(kind: Kind<T>, sent: JsonObject): T {
  // Without a value, `failAtFirst` has thrown.
  return kind.read(sent, '', failAtFirst) as T;
}

/** Fields of AWS Lambda that change what code does or who may run it, and that this service does not have. */
const UNSUPPORTED = [
  'VpcConfig',
  'FileSystemConfigs',
  'ImageConfig',
  'DeadLetterConfig',
  'CodeSigningConfigArn',
  'DurableConfig',
  'CapacityProviderConfig',
  'TenancyConfig',
];

/** Refuses unsupported fields that have a value. Clients also send them empty. */
function settable<T>(kind: ObjectKind<T>): Kind<T> {
  return {
    ...kind,
    read(value, path, problem) {
      for (const name of UNSUPPORTED) {
        if (hasValue((value as JsonObject)[name])) return wrongAt(name, 'is not supported: leave it out', problem);
      }
      return kind.read(value, path, problem);
    },
  };
}

function hasValue(value: unknown): boolean {
  if (Array.isArray(value)) return value.some(hasValue);
  return isJsonObject(value) ? Object.values(value).some(hasValue) : Boolean(value);
}

/**
 * Bytes in Base64, or decoded already by `readCodeBody`. The decoder skips other characters, so a shorter
 * result shows that there are some.
 */
function base64(): Kind<Buffer> {
  return kindOf({ type: 'string', format: 'byte' }, (value, path, problem) => {
    if (Buffer.isBuffer(value)) return value;
    const bytes = typeof value === 'string' ? Buffer.from(value, 'base64') : null;
    if (bytes !== null && bytes.length === Buffer.byteLength(value as string, 'base64')) return bytes;
    return wrongAt(path, 'must be a zip in Base64', problem);
  });
}
