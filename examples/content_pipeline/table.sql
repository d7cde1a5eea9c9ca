-- The content pipeline's own tables; `leasequeue schema adopt --strict-lanes` adds the lease columns to content_jobs.
CREATE TABLE content_jobs (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    site        text NOT NULL,
    kind        text NOT NULL,                     -- generate, validate, publish; enrich
    topic       text NOT NULL,                     -- path of the page inside the site
    input_json  jsonb NOT NULL
);
-- What generate made of a page and validate found about it.
CREATE TABLE content_page (
    path      text PRIMARY KEY,
    title     text NOT NULL,
    sections  jsonb NOT NULL,
    links     jsonb NOT NULL,
    words     integer NOT NULL,
    checked   jsonb
);
-- No key on purpose: nothing here stops a second publication of a page. That there is none is the lease's doing.
CREATE TABLE content_published (
    path          text NOT NULL,
    summary       jsonb NOT NULL,
    job_id        bigint NOT NULL,
    attempt       integer NOT NULL,
    published_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
