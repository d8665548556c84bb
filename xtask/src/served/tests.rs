use super::*;

#[test]
fn requests_that_are_cut_short_are_no_requests() {
    let mut request = vec![0; protocol::HEADER];
    request[4] = 15;
    request[8] = 77;
    assert_eq!(protocol::read(&request, &[NAME]), None);
    request.extend([0; 40]);
    request[protocol::HEADER + 9] = 16;
    request[protocol::HEADER + 17] = 32;
    assert_eq!(
        protocol::read(&request, &[NAME]),
        Some((77, protocol::Asked::Read { file: 0, offset: 4096, bytes: 8192 }))
    );
    assert_eq!(protocol::read(&request[..30], &[NAME]), None);
}
